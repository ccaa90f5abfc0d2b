"""Exclusive locks between processes of one machine. Child processes do not inherit them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from components.platform.console import say
from components.platform.errors import UserError

_SILENT_S = 1.0
"""Wait without a message: what holds a lock briefly is not worth one."""


@contextmanager
def exclusive_lock(
    path: Path, waiting: str = "", progress: Callable[[str], None] = say, limit_s: float = -1
) -> Iterator[None]:
    """Hold the lock on the file `path`, which is created if missing and stays; the system frees it if the holder dies.

    Args:
        path: of the lock file; its directory exists.
        waiting: message if another process holds the lock; "" prints none.
        progress: prints the message.
        limit_s: how long to wait for it; -1 means for ever.

    Raises:
        UserError: another process holds it for `limit_s`, one that is stopped for example.
    """
    from filelock import FileLock, Timeout  # takes 30 ms, which commands without locks need not wait for

    lock = FileLock(path)
    try:
        lock.acquire(timeout=_SILENT_S)
    except Timeout:
        if waiting:
            progress(waiting)
        try:
            lock.acquire(timeout=limit_s)
        except Timeout:
            raise UserError(
                f"another process has held {path} for {limit_s:.0f} s", f"continue or end it: fuser {path} names it"
            ) from None
    try:
        yield
    finally:
        lock.release()
