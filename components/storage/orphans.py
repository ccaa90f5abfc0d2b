"""Directories that somebody uses, and those whose maker or reader is gone (SIGKILL, a power cut).

Who makes or reads a directory holds a shared lock on it; what nobody holds may be removed. A lock rather than a process
number in the name: numbers mean nothing between containers that share a volume.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from components.storage.directory import make_directory


def hold(directory: Path) -> int | None:
    """Take a shared lock on a directory; return the descriptor that holds it, None if the directory is gone.

    Until the descriptor is closed `remove_unused` and `remove_orphans` leave the directory alone.
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


def make_held(parent: Path, prefix: str, wanted: Path) -> tuple[Path, int]:
    """Make a directory with a new name and take a shared lock on it, again if others remove it in between.

    Args:
        wanted: what errors are about.

    Returns:
        The directory and the descriptor that holds the lock.
    """
    while True:
        directory = parent / f"{prefix}{secrets.token_hex(4)}"
        make_directory(directory, wanted)
        if (descriptor := hold(directory)) is not None:
            return directory, descriptor


def is_at(descriptor: int, directory: Path) -> bool:
    """Whether `directory` is still the one that `descriptor` was opened on: others rename and remove."""
    try:
        return os.path.samestat(os.stat(directory), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def remove_unused(directory: Path) -> bool:
    """Remove a directory unless somebody holds it; return whether it is gone."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not is_at(descriptor, directory):
            return False  # another was quicker, and somebody has made it again
        # Away at once: a kill amid the removal must leave no directory that lacks files.
        going = directory.with_name(f".{directory.name[:200].lstrip('.')}.gone-{secrets.token_hex(8)}")
        os.rename(directory, going)
        shutil.rmtree(going, ignore_errors=True)
        return True
    except (BlockingIOError, FileNotFoundError):
        return False
    finally:
        os.close(descriptor)


def remove_orphans(directories: Iterable[Path], older_than_s: float = 0.0) -> None:
    """Removes those that nobody holds a lock on (flock), as well as it goes.

    Args:
        older_than_s: younger ones stay, where a maker may not have locked its own yet.
    """
    for left in directories:
        try:
            descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if not older_than_s or time.time() - os.fstat(descriptor).st_mtime > older_than_s:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
        except BlockingIOError:
            pass  # its maker is alive
        finally:
            os.close(descriptor)
