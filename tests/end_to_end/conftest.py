"""What is made once for all tests that look at it: a finished run of the whole chain, and the images of the steps."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.chain import mlgo_run
from tests.end_to_end.containers import build_images


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run directory of the whole chain, and what the run printed."""
    run = tmp_path_factory.mktemp("chain") / "run"
    return run, mlgo_run(run)


@pytest.fixture(scope="session")
def daemon() -> None:
    """Fails where no docker daemon answers."""
    if subprocess.run(["docker", "version"], capture_output=True, check=False).returncode != 0:
        pytest.fail("no docker daemon answers; .ci/run starts one, by hand: dockerd &")


@pytest.fixture(scope="session")
def images(daemon: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """build/images.json of images built from this very checkout."""
    return build_images(tmp_path_factory.mktemp("images") / "images.json")
