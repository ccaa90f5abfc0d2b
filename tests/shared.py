"""Fixtures that take long to make, made once even if several pytest-xdist workers use them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

MakeOnce = Callable[[str, Callable[[Path], None]], Path]


@pytest.fixture(scope="session")
def make_once(tmp_path_factory: pytest.TempPathFactory) -> MakeOnce:
    """A function that returns a directory that is made by the first worker that asks for it.

    Its arguments are the name of the directory and a function that makes its content. If that function fails, the next
    worker tries again.
    """
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def make(name: str, fill: Callable[[Path], None]) -> Path:
        directory = base / "shared" / name
        directory.parent.mkdir(exist_ok=True)
        done = directory.with_name(f"{name}.done")
        with FileLock(directory.with_name(f"{name}.lock")):
            if not done.exists():
                directory.mkdir(exist_ok=True)
                fill(directory)
                done.touch()
        return directory

    return make


@pytest.fixture(scope="session")
def training_toolchain(make_once: MakeOnce) -> Path:
    """A training toolchain.

    $MLGO_TRAINING_TOOLCHAIN names an existing one. Otherwise it is built, from cached objects if there are any, so that
    it always matches the present sources.
    """
    if given := os.environ.get("MLGO_TRAINING_TOOLCHAIN"):
        return Path(given)

    def build(directory: Path) -> None:
        output = str(directory / "training")
        command = [sys.executable, "-m", "components.toolchain", "--mode", "training", "--output", output]
        subprocess.run(command, check=True)

    return make_once("toolchain", build) / "training"
