"""Finds the links of a build: what its compilers recorded, or what its files say."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from components.core.formats.links import Link, LinksSource
from components.core.projects.build_links.build_files import commands_of_cmake, commands_of_ninja, links_in
from components.core.projects.build_links.recorded import has_recorder, read_recorded
from components.platform.errors import UserError

_REMEDY = (
    "build with the compilers that mlgo corpus compilers writes, and name their directory to mlgo corpus extract "
    "--compilers"
)


def find_links(tree: Path, compilers: Iterable[Path], required: bool = False) -> tuple[LinksSource, list[Link], str]:
    """Return who says how a build links, its links in the order of the build, and why there are none.

    Args:
        tree: absolute path of the directory that the build's objects are in.
        compilers: directories that may have compilers that record links.
        required: whether they must have.

    Raises:
        UserError: a directory has no such compilers although it must.
    """
    if links := recorded_links(tree, compilers, required):
        return "recorded", links, ""
    if links := links_in(commands_of_ninja(tree)):
        return "ninja", links, ""
    if links := links_in(commands_of_cmake(tree)):
        return "CMake", links, ""
    return "none", [], f"no link of the build is known; {_REMEDY}"


def recorded_links(tree: Path, compilers: Iterable[Path], required: bool = False) -> list[Link]:
    """Return the links of a build that its compilers recorded, in its order; for the arguments see `find_links`."""
    for directory in compilers:
        if has_recorder(directory):
            if recorded := [link for link in read_recorded(directory) if _belongs(link, tree)]:
                return recorded
        elif required:
            raise UserError(f"{directory} has no compilers that record links", f"{_REMEDY} DIR")
    return []


def _belongs(link: Link, tree: Path) -> bool:
    """Return whether a link is of the build: the compilers' directory has those of every build with them."""
    real = os.path.realpath(tree)
    words = (link.output, *(word for word in link.arguments if not word.startswith("-")))
    return any(
        os.path.isfile(path) and Path(os.path.realpath(path)).is_relative_to(real)
        for path in (os.path.join(link.directory, word) for word in words)
    )
