"""Makes and empties directories."""

from __future__ import annotations

import shutil
from pathlib import Path

from components.console import UserError
from components.storage.cache import VARIABLE, default_cache_dir
from components.storage.uri import uri_of


def make_directory(directory: Path, wanted: Path | None = None) -> None:
    """Makes `directory` and what it lies in, unless it is there.

    Args:
        wanted: what the user asked for, which errors are about; by default the directory itself.

    Raises:
        UserError: it cannot be made, for whatever reason the file system has: no permission, a file in the way, a file
            system such as /proc that takes no directories.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        wanted = wanted or directory
        if uri := uri_of(wanted):
            raise UserError(
                f"the cache in {default_cache_dir()} has no place for {uri}: {error.strerror}",
                f"set {VARIABLE} to a directory that you may write to",
            ) from None
        raise UserError(f"{wanted} cannot be made: {error.strerror}", "choose a place that you may write to") from None


def empty(directory: Path) -> None:
    """Removes everything in a directory."""
    for path in directory.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
