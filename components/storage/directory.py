"""Makes directories at places that the user chose."""

from __future__ import annotations

from pathlib import Path

from components.console import UserError


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
        raise UserError(
            f"{wanted or directory} cannot be made: {error.strerror}", "choose a place that you may write to"
        ) from None
