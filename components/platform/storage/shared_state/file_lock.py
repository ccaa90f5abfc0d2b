"""Exclusive locks between processes of one machine. Child processes do not inherit them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from components.platform.console import say


@contextmanager
def exclusive_lock(path: Path, waiting: str = "", progress: Callable[[str], None] = say) -> Iterator[None]:
    """Hold the lock on the file `path`, which is created if missing and stays; the system frees it if the holder dies.

    Args:
        path: of the lock file; its directory exists.
        waiting: message if another process holds the lock; "" prints none.
        progress: prints the message.
    """
    from filelock import FileLock, Timeout  # takes 30 ms, which commands without locks need not wait for

    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        if waiting:
            progress(waiting)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
