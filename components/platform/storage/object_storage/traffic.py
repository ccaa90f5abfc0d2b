"""Counts the bytes of objects that this process reads from and writes to object storage; repeated parts count once."""

from __future__ import annotations

import threading
from dataclasses import dataclass


@dataclass(frozen=True)
class Traffic:
    """Bytes of objects that were moved."""

    read_bytes: int = 0
    written_bytes: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.read_bytes + other.read_bytes, self.written_bytes + other.written_bytes)


_lock = threading.Lock()
_moved = Traffic()


def count_read(size_bytes: int) -> None:
    """Count bytes that were read."""
    _count(Traffic(read_bytes=size_bytes))


def count_written(size_bytes: int) -> None:
    """Count bytes that were written."""
    _count(Traffic(written_bytes=size_bytes))


def moved() -> Traffic:
    """Return what this process has moved so far."""
    with _lock:
        return _moved


def _count(more: Traffic) -> None:
    global _moved
    with _lock:
        _moved += more
