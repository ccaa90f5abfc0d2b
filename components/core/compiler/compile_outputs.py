"""Reads and takes the files that a compile leaves.

A compile of a corpus from elsewhere may leave anything under the names of its outputs: a link to a file of the user, a
pipe that no one writes, a device, a file without end. So each is opened once, without following a link and without
waiting, must be a regular file with no other name, and is read by its descriptor.
"""

from __future__ import annotations

import mmap
import os
import shutil
from pathlib import Path

from components.platform.storage.input_files import open_regular

MAX_OBJECT_BYTES = 4 << 30
MAX_LOG_BYTES = 2 << 30
"""A training log has about 300 bytes for a decision about inlining, 3500 for one about registers."""


class NoRegularFile(FileNotFoundError):
    """The compile left something else than a file of its own, or too large a file."""


def open_output(path: Path, limit_bytes: int) -> int:
    """Open a file that a compile left; return its descriptor.

    Raises:
        FileNotFoundError: there is none.
        NoRegularFile: it is a link, has another name, is no regular file or has more bytes than the limit.
    """
    try:
        descriptor = open_regular(path, os.O_NOFOLLOW)
    except FileNotFoundError:
        raise
    except OSError as error:  # ELOOP: a link
        raise NoRegularFile(f"{path} is no regular file: {error.strerror}") from None
    found = os.fstat(descriptor)
    if found.st_nlink == 1 and found.st_size <= limit_bytes:
        return descriptor
    os.close(descriptor)
    has = f"{found.st_nlink} names" if found.st_nlink > 1 else f"{found.st_size} bytes, more than {limit_bytes}"
    raise NoRegularFile(f"{path} has {has}")


def read_output(path: Path, limit_bytes: int = MAX_LOG_BYTES) -> bytes:
    """Return the content of a file that a compile left. Raises what `open_output` raises."""
    with os.fdopen(open_output(path, limit_bytes), "rb") as stream:
        return stream.read(limit_bytes)  # it may have grown


def map_output(path: Path) -> memoryview:
    """Map an object that a compile left into memory; it is unmapped with its last view. An empty one is b"".

    Raises what `open_output` raises.
    """
    with os.fdopen(open_output(path, MAX_OBJECT_BYTES), "rb", buffering=0) as stream:
        if os.fstat(stream.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ))


def take_output(path: Path, target: Path) -> None:
    """Copy a file that a compile left to a new file, in place of a file or link at `target`.

    Raises what `open_output` raises.
    """
    with os.fdopen(open_output(path, MAX_OBJECT_BYTES), "rb") as source:
        target.unlink(missing_ok=True)
        created = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        with os.fdopen(created, "wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
