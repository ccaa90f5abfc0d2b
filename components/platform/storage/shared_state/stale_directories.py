"""Shared locks on directories in use, and removal of directories whose maker or reader is gone (SIGKILL, power loss).

Whoever makes or reads a directory holds a shared lock on it; unlocked directories may be removed. Locks are used rather
than process numbers in names because numbers mean nothing between containers that share a volume.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from components.platform.storage.directory import last_used, make_directory, size_of


def lock_shared(directory: Path) -> int | None:
    """Take a shared lock on a directory; return the descriptor that holds it, None if the directory is gone.

    `remove_unused` and `remove_stale` skip the directory until the descriptor is closed.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    if is_at(descriptor, directory):
        return descriptor
    os.close(descriptor)
    return None


def create_locked(parent: Path, prefix: str, path_in_errors: Path) -> tuple[Path, int]:
    """Make a directory with a new name and lock it (shared); retry if another process removes it in between.

    Args:
        path_in_errors: the path that errors name.

    Returns:
        The directory and the descriptor that holds the lock.
    """
    while True:
        directory = parent / f"{prefix}{secrets.token_hex(4)}"
        make_directory(directory, path_in_errors)
        if (descriptor := lock_shared(directory)) is not None:
            return directory, descriptor


def is_at(descriptor: int, directory: Path) -> bool:
    """Return whether `directory` is still what `descriptor` was opened on: others rename and remove."""
    try:
        return os.path.samestat(os.stat(directory), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def remove_unused(directory: Path) -> bool:
    """Remove a directory unless a process holds it; return whether it was removed."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not is_at(descriptor, directory):
            return False  # another process removed it, and it was made again
        # Renamed first: a kill during the removal must not leave an incomplete directory under the name.
        doomed = directory.with_name(f".{directory.name[:200].lstrip('.')}.gone-{secrets.token_hex(8)}")
        os.rename(directory, doomed)
        shutil.rmtree(doomed, ignore_errors=True)
        return True
    except (BlockingIOError, FileNotFoundError):
        return False
    finally:
        os.close(descriptor)


def evict(directories: Iterable[Path], limit_bytes: float) -> int:
    """Remove directories that no process holds, least recently used first, down to a limit; return the bytes left."""
    sizes = {directory: size_of(directory) for directory in directories}
    total = sum(sizes.values())
    for directory in sorted(sizes, key=last_used):
        if total <= limit_bytes:
            break
        if remove_unused(directory):
            total -= sizes[directory]
    return total


def remove_stale(directories: Iterable[Path], older_than_s: float = 0.0) -> None:
    """Remove the directories that no process holds a lock on (flock), best effort.

    Args:
        older_than_s: minimum age; the maker of a younger one may not have locked it yet.
    """
    for directory in directories:
        try:
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if not older_than_s or time.time() - os.fstat(descriptor).st_mtime > older_than_s:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            pass  # its maker is alive, or the file system has no such locks
        finally:
            os.close(descriptor)
