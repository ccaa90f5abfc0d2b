"""Paths of this machine to mount in a step's container: those that its command names, and those that the files at these
paths name."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from components.core.projects.compile_commands import objects_in
from components.core.projects.link_recorder.recorder import LINKER, read_links
from components.core.projects.recipe import load_recipes, recipe_files
from components.platform.errors import UserError
from components.platform.storage.input_files import read_bytes
from components.platform.storage.uri import parse_location

_IMAGES_OWN = (
    *map(Path, ("/bin", "/dev", "/etc", "/lib", "/opt/mlgo", "/proc", "/sbin", "/sys", "/tmp", "/var/lib")),
    *map(Path, ("/usr/bin", "/usr/lib", "/usr/local", "/usr/share")),
)
"""Directories of the image that a step needs: a mount there or above would hide them."""


def mounted_paths(command: Sequence[str]) -> tuple[Path, ...]:
    """Return the paths of this machine that a step's command reads: absolute, existing, none inside another.

    Args:
        command: the command with its placeholders filled in.

    Raises:
        UserError: a path would hide a directory of the container itself, or a recipe is invalid.
    """
    paths: set[Path] = set()
    for flag, argument in itertools.pairwise(command):
        path = _local(argument)
        if path is None or not path.exists():
            continue
        if _hides(path):
            raise UserError(
                f"{flag} {path} would hide {path} of the container",
                "move its content to another directory, or use --runner process",
            )
        has_names = flag in _NAMED_BY and (path.is_file() or flag == "--input")
        paths |= {path, *(_NAMED_BY[flag](path) if has_names else ())}
    return tuple(_outermost(filter(Path.exists, paths)))


def _of_build(database: Path) -> Iterator[Path]:
    """Yield the directories that compile commands ran in, and for objects elsewhere their directory or themselves."""
    for directory, written in objects_in(read_bytes(database).decode("utf-8", "replace"), database):
        path = Path(os.path.abspath(written))
        within = [Path(directory)] if path.is_relative_to(directory) else []
        yield from [candidate for candidate in (*within, path.parent, path) if not _hides(candidate)][:1]


def _of_recipe(recipe: Path) -> Iterator[Path]:
    """Yield the files of a recipe and the local trees that it builds."""
    yield from recipe_files(recipe)
    for project in load_recipes(recipe).projects:
        for source in (project.source, *(other for _name, other in project.requires)):
            if source.kind == "path" and not _hides(Path(source.location)):
                yield Path(source.location)


def _of_input(path: Path) -> Iterator[Path]:
    """Yield what an input of an extraction names: a database of compiles its objects, a directory of links theirs.

    Objects in a linker's arguments are below another directory, which the command names.
    """
    if path.is_file():
        yield from _of_build(path)
    elif (path / LINKER).is_file():
        yield from {Path(link.directory) for link in read_links(path) if not _hides(Path(link.directory))}


_NAMED_BY: dict[str, Callable[[Path], Iterable[Path]]] = {
    "--compile-commands": _of_build,
    "--recipe": _of_recipe,
    "--input": _of_input,
}


def _local(argument: str) -> Path | None:
    """Return the path that an argument names, None if it is relative, a URI, or not a path at all."""
    try:
        location = parse_location(argument)
    except UserError:  # a URI of another scheme
        return None
    return Path(os.path.normpath(location)) if isinstance(location, Path) and location.is_absolute() else None


def _hides(path: Path) -> bool:
    return any(own.is_relative_to(path) for own in _IMAGES_OWN)


def _outermost(paths: Iterable[Path]) -> Iterator[Path]:
    last: Path | None = None
    for path in sorted(paths):
        if last is None or not path.is_relative_to(last):
            last = path
            yield path
