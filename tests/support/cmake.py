"""Configures projects of CMake."""

from __future__ import annotations

import subprocess
from pathlib import Path


def configure_cmake(source: Path, generator: str, *options: str) -> Path:
    """Configure a project in its directory `build`, and return that."""
    build = source / "build"
    command: list[str | Path] = ["cmake", "-G", generator, "-S", source, "-B", build, *options]
    subprocess.run(command, check=True, capture_output=True)
    return build
