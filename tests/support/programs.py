"""Programs that tests run; some are in the test environment only (docker/requirements/test.txt)."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path


def program(name: str) -> str | None:
    """Return the path of a program of the running Python environment, else of $PATH, else None."""
    return shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)


def configure_cmake(source: Path, generator: str, *options: str) -> Path:
    """Configure a project of CMake in its directory `build`, and return that."""
    build = source / "build"
    command: list[str | Path] = ["cmake", "-G", generator, "-S", source, "-B", build, *options]
    subprocess.run(command, check=True, capture_output=True)
    return build
