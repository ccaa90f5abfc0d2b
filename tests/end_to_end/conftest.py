"""Shared fixtures of the end-to-end tests: a finished run of the whole pipeline, and the images of the steps."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.chain import mlgo_run
from tests.end_to_end.containers import build_images


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the directory of a finished run of the whole pipeline, and the output of the run."""
    run = tmp_path_factory.mktemp("chain") / "run"
    return run, mlgo_run(run)


@pytest.fixture(scope="session")
def daemon() -> None:
    """Fail if no docker daemon answers."""
    if subprocess.run(["docker", "version"], capture_output=True, check=False).returncode != 0:
        pytest.fail("no docker daemon answers; .ci/run starts one, or run dockerd &")


@pytest.fixture(scope="session")
def images(daemon: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the images.json of images built from this checkout."""
    return build_images(tmp_path_factory.mktemp("images") / "images.json")
