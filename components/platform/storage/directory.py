"""Creates and empties directories."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from components.platform.errors import UserError
from components.platform.storage.cache import VARIABLE, default_cache_dir, unusable_cache
from components.platform.storage.uri import uri_of


def make_directory(directory: Path, path_in_errors: Path | None = None) -> None:
    """Create `directory` and its parents unless it exists.

    Args:
        path_in_errors: the path that the user gave, for errors; by default the directory itself.

    Raises:
        UserError: it cannot be created, for any reason: no permission, a file in the way, a file system such as /proc
            in which none can be created.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        path_in_errors = path_in_errors or directory
        if uri := uri_of(path_in_errors):
            raise UserError(
                f"the cache in {default_cache_dir()} cannot hold {uri}: {error.strerror}",
                f"set {VARIABLE} to a writable directory",
            ) from None
        if unusable := unusable_cache(directory, error.strerror or str(error)):
            raise unusable from None
        in_the_way = next(parent for parent in (directory, *directory.parents) if parent.exists())
        if in_the_way == path_in_errors:
            raise UserError(f"{path_in_errors} exists and is not a directory", "choose another place") from None
        if not in_the_way.is_dir():
            problem = f"{path_in_errors} cannot be created: {in_the_way} is not a directory"
            raise UserError(problem, "choose another place") from None
        raise UserError(f"{path_in_errors} cannot be created: {error.strerror}", "choose a writable place") from None


@contextmanager
def remove_if_unused(directory: Path) -> Iterator[None]:
    """When the block ends, remove `directory` and its parents again that did not exist before and are empty."""
    missing = list(itertools.takewhile(lambda path: not path.exists(), (directory, *directory.parents)))
    try:
        yield
    finally:
        with suppress(OSError):  # not empty
            for parent in missing:
                with suppress(FileNotFoundError):
                    parent.rmdir()


def empty(directory: Path, keep: Container[str] = ()) -> None:
    """Remove everything in a directory but the names in `keep`."""
    for path in directory.iterdir():
        if path.name in keep:
            continue
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def size_of(directory: Path) -> int:
    """Return the bytes of the files below `directory`; others rename and evict meanwhile, which os.walk tolerates."""
    total = 0
    for folder, _folders, files in os.walk(directory):
        for name in files:
            with suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def last_used(path: Path) -> float:
    """Return when a directory of a cache was used, by its modification time (seconds since 1970); 0 if it is gone."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
