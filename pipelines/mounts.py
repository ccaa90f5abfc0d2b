"""What of this machine a step's container must see beside its run: the paths that its command names, and what is named
in the files at these paths."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from components.console import UserError
from components.projects.compile_commands import objects_in
from components.projects.recipe import load_recipes, recipe_files
from components.storage.input_files import read_bytes
from components.storage.uri import parse_place

_IMAGES_OWN = tuple(
    Path(p)
    for p in ("/bin", "/dev", "/etc", "/lib", "/opt/mlgo", "/proc", "/sbin", "/sys", "/tmp", "/usr/bin", "/usr/lib",
              "/usr/local", "/usr/share", "/var/lib")
)  # fmt: skip
"""What a step could not run without: a mount there or above would hide it."""


def shown_paths(command: Sequence[str]) -> tuple[Path, ...]:
    """The paths of this machine that a step's command (filled in) reads: absolute, there, none within another.

    Raises:
        UserError: one of them would hide what the container itself is made of, or a recipe is none.
    """
    paths: set[Path] = set()
    for flag, argument in itertools.pairwise(command):
        path = _local(argument)
        if path is None or not path.exists():
            continue
        if _hides(path):
            raise UserError(
                f"{flag} is {path}, and a container has a {path} of its own",
                "put what it holds in a directory of its own, or run it with --runner process",
            )
        paths |= {path, *(_NAMED_BY[flag](path) if flag in _NAMED_BY and path.is_file() else ())}
    return tuple(_outermost(filter(Path.exists, paths)))


def _of_build(database: Path) -> Iterator[Path]:
    """The directories that commands ran in, which hold the objects; of objects elsewhere the directory, or they."""
    for directory, written in objects_in(read_bytes(database).decode("utf-8", "replace")):
        path = Path(os.path.abspath(written))
        within = [Path(directory)] if path.is_relative_to(directory) else []
        yield from itertools.islice((place for place in (*within, path.parent, path) if not _hides(place)), 1)


def _of_recipe(recipe: Path) -> Iterator[Path]:
    """The recipes of a set, and the trees that are built."""
    yield from recipe_files(recipe)
    for project in load_recipes(recipe).projects:
        for source in (project.source, *(other for _name, other in project.requires)):
            if source.kind == "path" and not _hides(Path(source.location)):
                yield Path(source.location)


_NAMED_BY: dict[str, Callable[[Path], Iterable[Path]]] = {"--compile-commands": _of_build, "--recipe": _of_recipe}


def _local(argument: str) -> Path | None:
    """The path that an argument names; None if it is relative, a URI, or something else altogether."""
    try:
        place = parse_place(argument)
    except UserError:  # of another scheme
        return None
    return Path(os.path.normpath(place)) if isinstance(place, Path) and place.is_absolute() else None


def _hides(path: Path) -> bool:
    return any(own.is_relative_to(path) for own in _IMAGES_OWN)


def _outermost(paths: Iterable[Path]) -> Iterator[Path]:
    last: Path | None = None
    for path in sorted(paths):
        if last is None or not path.is_relative_to(last):
            last = path
            yield path
