"""Waits for what another process or thread does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Process(Protocol):
    """What subprocess.Popen and ForkedStep have in common here."""

    def poll(self) -> int | None: ...

    def communicate(self) -> Any: ...


def wait_until(
    condition: Callable[[], T],
    what: str = "the condition was not met in time",
    process: Process | None = None,
    timeout_s: float = 60.0,
    every_s: float = 0.02,
) -> T:
    """Return the first value of `condition` that is true. AssertionError after `timeout_s`, or if `process` ends."""
    deadline_s = time.monotonic() + timeout_s
    while not (value := condition()):
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < deadline_s, what
        time.sleep(every_s)
    return value
