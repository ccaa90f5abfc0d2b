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
    """Build images from this checkout; return `output`, the images.json."""
    command = [sys.executable, "-m", "pipelines", "images", "build", "--output", str(output), *more]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
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
