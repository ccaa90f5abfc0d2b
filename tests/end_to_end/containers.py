"""Helpers of the image tests: run containers with minimal privileges."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
USER = "1000:1000"
CAUTIOUS = (
    "--read-only",
    "--tmpfs",
    "/tmp:exec",
    "--user",
    USER,
    "--cap-drop",
    "ALL",
    "--security-opt",
    "no-new-privileges",
)
"""Options of `docker run`: not root, nothing writable but /tmp and mounts."""


def build_images(output: Path, *more: str) -> Path:
    """Build images from this checkout, and remove those that tests built from others; return `output`, images.json."""
    command = [sys.executable, "-m", "pipelines", "images", "build", "--registry", "mlgo-test", "--output", str(output)]
    done = subprocess.run(
        [*command, *more], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:]
    commit = str(json.loads(output.read_text())["training"]["tag"]).rpartition(":")[2]
    for image in docker(
        "image", "ls", "--filter", "reference=mlgo-test/*", "--format", "{{.Repository}}:{{.Tag}}"
    ).split():
        if not image.endswith(f":{commit}"):
            docker("image", "rm", image, check=False)  # a second run may have removed it
    return output


def reference(images: Path, name: str) -> str:
    return str(json.loads(images.read_text())[name]["reference"])


def docker(*arguments: str, timeout_s: float = 300, check: bool = True) -> str:
    """Return the output of `docker ARGUMENTS`, including stderr."""
    done = subprocess.run(
        ["docker", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0 or not check, f"docker {' '.join(arguments)}\n{done.stdout[-6000:]}"
    return done.stdout
