"""Test of docker/compose/compose.yaml: the chain in containers with an emulated bucket."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from components.core.formats.toolchain import load_toolchain
from components.platform.launcher.images import STEPS
from tests.end_to_end.containers import ROOT, docker, reference

COMPOSE = ROOT / "docker" / "compose" / "compose.yaml"


def compose(project: str, *arguments: str, **variables: str) -> str:
    """Return the output of docker compose, of whichever version is installed."""
    version_2 = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0
    program = ["docker", "compose"] if version_2 else ["docker-compose"]
    done = subprocess.run(
        [*program, "-f", str(COMPOSE), "-p", project, *arguments],
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1800,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]
    return done.stdout


@pytest.mark.docker
@pytest.mark.timeout(3600)
def test_chain_runs_and_delivers_release_clang(images: Path, container_cache: Path, tmp_path: Path) -> None:
    project = f"mlgo-{os.getpid()}"
    output = tmp_path / "runs"
    output.mkdir()
    variables = {
        "RECIPE": "tiny",
        "PRESET": "tiny",
        "OUTPUT": str(output),
        "RUN_AS": f"{os.getuid()}:{os.getgid()}",
        "CACHE": str(container_cache / "containers"),
    } | {f"MLGO_{name.upper()}_IMAGE": reference(images, name) for name in STEPS}
    try:
        compose(project, "up", "--detach", **variables)
        labels = (f"com.docker.compose.project={project}", "com.docker.compose.service=result")
        last = docker("ps", "--all", "--quiet", *(f"--filter=label={label}" for label in labels)).strip()
        assert docker("wait", last, timeout_s=600).strip() == "0"
    finally:
        print(compose(project, "logs", "--no-color", **variables)[-20000:])
        compose(project, "down", "--volumes", "--rmi", "local", **variables)
    release = output / "compose" / "release"
    version = subprocess.run([release / "bin" / "clang", "--version"], capture_output=True, text=True, check=True)
    assert "release clang, inlining policy" in version.stdout
    assert load_toolchain(release).built["lld"] == "yes", "the image has lld's libraries"
    metrics = json.loads((output / "compose" / "evaluation" / "metrics.json").read_text())
    assert metrics["modules"] == 3 and metrics["verdict"]
