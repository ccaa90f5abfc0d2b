"""Finds the name of the project that a build is of."""

from __future__ import annotations

import re
from pathlib import Path

_NO_NAME = re.compile(
    r"(?:cmake-?)?build(?:[-_.].*|\d*)|src|sources?|out|outputs?|objs?|bin|libs?|code|trunk|work|tmp|default|"
    r"release|debug|minsizerel|relwithdebinfo|dist|target|oz|os|x86_64.*",
    re.IGNORECASE,
)
"""Names of directories that say nothing of the project in them."""
_CMAKE_HOME = re.compile(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.+)$", re.MULTILINE)


def name_project(build: Path) -> str:
    """Return the name of a build's source tree: of CMake's, otherwise of the nearest directory above that has one."""
    build = build.absolute()
    for directory in (_cmake_home(build), build):
        for candidate in () if directory is None else (directory, *directory.parents):
            if candidate.name and not _NO_NAME.fullmatch(candidate.name):
                return candidate.name
    return "project"


def _cmake_home(build: Path) -> Path | None:
    try:
        cache = (build / "CMakeCache.txt").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = _CMAKE_HOME.search(cache)
    return Path(match[1]) if match else None
