"""Replaces a directory by another so that its name has the old or the new one, whenever the process is killed.

Where the file system can exchange two names in one call, the name has an artifact at every moment. Elsewhere (NFS, some
FUSE and overlay file systems) the old directory is renamed first, to the new one's name and "-old". If the process is
killed then, the next publisher or reader renames it back.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from components.platform.console import say
from components.platform.storage.shared_state.stale_directories import is_at, lock_shared

OLD = "-old"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2  # linux/fs.h
_OCCUPIED = (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
_LONGEST_GAP_S = 60.0
"""Age of an "-old" directory whose maker counts as dead where locks do not tell: its life is two system calls long."""
_FLUSHES = 16
"""Files flushed at the same time, which a journal writes together."""


def put_in_place(partial: Path, output: Path) -> None:
    """Give `output` the directory `partial`; the old one, if any, is removed or has the name `partial` afterwards."""
    while True:
        try:
            os.rename(partial, output)  # works if `output` is missing or an empty directory
            return
        except OSError as error:
            if error.errno not in _OCCUPIED:
                raise
        try:
            _exchange(partial, output)
            return
        except OSError:
            pass
        # Held until the end, so that a directory without a lock was left by a killed process.
        held = None if output.is_symlink() or not output.is_dir() else lock_shared(output)
        try:
            aside = partial.with_name(partial.name + OLD)
            os.rename(output, aside)
            try:
                os.rename(partial, output)
            except OSError as error:
                if error.errno in _OCCUPIED:
                    continue  # another publisher was first
                raise
            finally:
                shutil.rmtree(aside, ignore_errors=True) if output.exists() else os.rename(aside, output)
            return
        finally:
            if held is not None:
                os.close(held)


def restore_replaced(output: Path) -> None:
    """If a publisher was killed after it had renamed the directory at `output`, rename it back.

    Raises:
        OSError: it cannot be renamed.
    """
    if os.path.lexists(output) or not output.parent.is_dir():
        return
    start = f".{output.name}.partial-"
    left = [path for path in output.parent.iterdir() if path.name.startswith(start) and path.name.endswith(OLD)]
    for old in sorted(left, key=lambda path: path.lstat().st_ctime, reverse=True):
        try:
            descriptor = os.open(old, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if _is_left(descriptor) and is_at(descriptor, old):
                os.rename(old, output)
                say(f"{output}: its replacement was interrupted; the previous one is there again")
                return
        except OSError as error:
            if error.errno not in (*_OCCUPIED, errno.ENOENT):
                raise
        finally:
            os.close(descriptor)


def flush_files(directory: Path) -> None:
    """Write the files below a directory, and their names, to the disk: what is renamed later survives a power loss."""
    paths = [Path(folder, name) for folder, _folders, names in os.walk(directory) for name in ("", *names)]
    with ThreadPoolExecutor(_FLUSHES) as pool:
        list(pool.map(flush, (path for path in paths if not path.is_symlink())))


def flush(path: Path) -> None:
    """Write the content of a file, or the names in a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_left(descriptor: int) -> bool:
    """Return whether the process that renamed the directory away is dead."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except OSError:  # NFS has no exclusive locks on what is open for reading
        return time.time() - os.fstat(descriptor).st_ctime > _LONGEST_GAP_S


def _exchange(left: Path, right: Path) -> None:
    """Swap two directory entries atomically (renameat2, Linux 3.15). OSError where it is not supported."""
    libc = ctypes.CDLL(None, use_errno=True)
    rename = getattr(libc, "renameat2", None)
    if rename is None:
        raise OSError("no renameat2 in this C library")
    if rename(_AT_FDCWD, os.fsencode(left), _AT_FDCWD, os.fsencode(right), _RENAME_EXCHANGE) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
