"""How the projects and packages of a corpus are built."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from components.core.projects.debian_build.package import DebianBuild
from components.core.projects.extraction_options import Unit

EMBED = ("-Xclang", "-fembed-bitcode=all")


@dataclass(frozen=True)
class BuildConfig:
    """How the projects are built, in the empty directory `work`.

    `level`: optimization level ("-Oz"); modules that are compiled at another one are skipped. `package`: how Debian
    packages are built. `retry_failed`: rebuild those that failed before. `unit`: what a module is: an object, or a
    linked program or shared library.
    """

    clang: Path
    work: Path
    cache: Path
    level: str
    jobs: int = 2
    package: DebianBuild = field(default_factory=DebianBuild)
    retry_failed: bool = False
    unit: Unit = "object"
