"""Shared fixtures of the end-to-end tests: a finished run of the whole pipeline, and the images of the steps."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from components.platform.storage.cache import default_cache_dir
from tests.end_to_end.chain import ACCEPTED, mlgo_run
from tests.end_to_end.containers import USER, build_images
from tests.support.shared import MakeOnce


@pytest.fixture(scope="session")
def finished(make_once: MakeOnce) -> tuple[Path, str]:
    """Return the directory of a finished run of the whole pipeline, whose policy is accepted, and the run's output."""

    def run(directory: Path) -> None:
        (directory / "output").write_text(mlgo_run(directory / "run", *ACCEPTED))

    made = make_once("chain", run)
    return made / "run", (made / "output").read_text()


@pytest.fixture(scope="session")
def daemon() -> None:
    """Fail if no docker daemon answers."""
    if subprocess.run(["docker", "version"], capture_output=True, check=False).returncode != 0:
        pytest.fail("no docker daemon answers; .ci/run starts one, or run dockerd &")


@pytest.fixture(scope="session")
def images(daemon: None, make_once: MakeOnce) -> Path:
    """Return the images.json of images built from this checkout."""

    def build(directory: Path) -> None:
        build_images(directory / "images.json")

    return make_once("images", build) / "images.json"


@pytest.fixture(scope="session")
def container_cache(training_toolchain: Path, pretrained_release: Path, make_once: MakeOnce) -> Path:
    """Return a cache directory whose folder containers/ is the cache of containers.

    Its ccache has the objects that this machine compiled for the toolchains of other tests.
    """

    def make(directory: Path) -> None:
        compiled = Path(os.environ.get("CCACHE_DIR") or default_cache_dir() / "ccache")
        (directory / "containers" / "ccache").mkdir(parents=True)
        if compiled.exists():  # not where $MLGO_TRAINING_TOOLCHAIN names a toolchain
            shutil.copytree(compiled, directory / "containers" / "ccache", dirs_exist_ok=True)
        subprocess.run(["chown", "--recursive", USER, directory / "containers"], check=True)

    return make_once("container-cache", make)
