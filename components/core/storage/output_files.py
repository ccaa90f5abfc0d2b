"""Atomic writes of single files."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from components.core.console import UserError

_FULL = (errno.ENOSPC, errno.EDQUOT)


def replace_text(path: Path, text: str) -> None:
    """Replace `path` atomically by a file with this text, in UTF-8. Raises as `replace_bytes`."""
    replace_bytes(path, text.encode("utf-8"))


def replace_bytes(path: Path, content: bytes, flush: bool = False) -> None:
    """Replace `path` atomically by a file with this content.

    Args:
        flush: whether it must survive a crash of the machine.

    Raises:
        UserError: `path` is a directory.
        OSError: it cannot be written; the previous file stays, and no partial file is left.
    """
    if path.is_dir():
        raise UserError(f"{path} is a directory, but a file is written there", "remove it")
    partial = path.with_name(f".{path.name}.partial-{secrets.token_hex(4)}")
    try:
        with full_disk_named(path), open(partial, "wb") as stream:
            stream.write(content)
            if flush:
                stream.flush()
                os.fsync(stream.fileno())
        os.replace(partial, path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def full_disk_named(place: Path) -> Iterator[None]:
    """Add a path to the error of a full disk that has none: errors of writes name no file.

    The path is `place`, or the directory for temporary files if that is full and the disk of `place` is not.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL or error.filename:
            raise
        raise OSError(error.errno, error.strerror, str(_full_place(place))) from error


def _full_place(place: Path) -> Path:
    # Imported here, because it looks for a directory that can be written.
    import tempfile

    directory = next((parent for parent in (place, *place.absolute().parents) if parent.is_dir()), place)
    try:
        temporary = Path(tempfile.gettempdir())
    except OSError:  # there is none with room for a file
        return place
    return temporary if _is_full(temporary) and not _is_full(directory) else place


def _is_full(directory: Path) -> bool:
    try:
        status = os.statvfs(directory)
    except OSError:
        return False
    return status.f_bavail * status.f_frsize < 1 << 16 or (status.f_files > 0 and status.f_favail == 0)
