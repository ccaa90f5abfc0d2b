"""Atomic writes of single files."""

from __future__ import annotations

import errno
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from components.platform.console.progress import STANDARD_OUTPUT
from components.platform.errors import UserError
from components.platform.storage.put_in_place import flush as flush_to_disk
from components.platform.storage.replaceable import require_apart

_FULL = (errno.ENOSPC, errno.EDQUOT)
_STREAMS = ("/dev/stdout", "/dev/stderr", "/dev/fd", "/proc")
"""Files of open descriptors. /dev/shm has ordinary files."""


def replace_text(path: Path, text: str) -> None:
    """Replace `path` atomically by a file with this text, in UTF-8. Raises as `replace_bytes`."""
    replace_bytes(path, text.encode("utf-8"))


def replace_bytes(path: Path, content: bytes, flush: bool = False) -> None:
    """Replace `path` atomically by a file with this content. Arguments and errors as `replace_file`."""
    with replace_file(path, flush) as stream:
        stream.write(content)


@contextmanager
def replace_file(path: Path, flush: bool = False) -> Iterator[IO[bytes]]:
    """Replace `path` atomically by what is written to the stream.

    Args:
        flush: whether it must survive a crash of the machine.

    Devices such as /dev/stdout are not replaced, but written to. Of a link, the target is replaced.

    Raises:
        UserError: `path` is a directory.
        OSError: it cannot be written; the previous file stays, and no partial file is left.
    """
    if path.is_dir():
        raise UserError(f"{path} is a directory, but a file is written there", "remove it")
    if path.is_char_device() or any(map(path.is_relative_to, _STREAMS)):
        with path.open("wb") as stream:
            yield stream
        return
    if path.is_symlink() and path.is_file():
        path = path.resolve()
    partial = path.with_name(f".{path.name}.partial-{secrets.token_hex(4)}")
    try:
        with name_full_disk(path), open(partial, "wb") as stream:
            yield stream
            if flush:
                stream.flush()
                os.fsync(stream.fileno())
        os.replace(partial, path)
        if flush:
            flush_to_disk(path.parent)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def name_full_disk(target: Path) -> Iterator[None]:
    """Name what is full in the error of a full disk: errors of writes name no file, those of copies their source.

    That is `target`, unless another file or the directory for temporary files is on a full disk and `target` is not.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL or error.filename == STANDARD_OUTPUT:
            raise
        named = [Path(str(name)) for name in (error.filename2, error.filename) if name]
        full = next((path for path in (target, *named, Path(tempfile.gettempdir())) if _is_full(path)), target)
        raise OSError(error.errno, error.strerror, str(full)) from error


def require_room(message: str, target: Path) -> None:
    """Raise OSError (ENOSPC) if the error message of a program that writes to `target` says that a disk is full."""
    if os.strerror(errno.ENOSPC) in message:
        temporary = Path(tempfile.gettempdir())
        full = next((path for path in (target, temporary) if _is_full(path)), f"{target} or {temporary}")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(full))


def _is_full(path: Path) -> bool:
    directory = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.is_dir())
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize < 1 << 16 or (status.f_files > 0 and status.f_favail == 0)


def require_writable(path: Path, option: str) -> None:
    """Raise UserError if no file can be written at `path`; called before the work whose result goes there.

    Nor is one written in an artifact, which it would damage, or in an input of the running command.
    """
    if path.is_dir():
        raise UserError(f"{option} {path} is a directory, but a file is written there", "name a file in it")
    folder = path.absolute().parent
    if not folder.is_dir():
        raise UserError(f"{option} {path}: there is no directory {folder}", f"mkdir -p {folder}")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise UserError(f"{option} {path} cannot be written", "choose a file that you can write to")
    require_apart(path, f"name a file elsewhere with {option}")
