"""Waits for what another process or thread does."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Process(Protocol):
    """What subprocess.Popen and ForkedStep have in common here."""

    def poll(self) -> int | None: ...

    def kill(self) -> None: ...

    def communicate(self, *, timeout: float | None) -> Any: ...


def wait_until(
    condition: Callable[[], T],
    what: str = "the condition",
    process: Process | None = None,
    timeout_s: float = 60.0,
    every_s: float = 0.02,
) -> T:
    """Return the first value of `condition` that is true.

    Args:
        what: is waited for, for the message.
        process: should run meanwhile; it is killed after a failure, so that nothing waits for it.

    Raises:
        AssertionError: after `timeout_s`, or `process` ended.
    """
    deadline_s = time.monotonic() + timeout_s
    while not (value := condition()):
        ended = process is not None and process.poll() is not None
        if ended or time.monotonic() > deadline_s:
            raise AssertionError(f"waiting for {what}: {'the process ended' if ended else 'timed out'} {_end(process)}")
        time.sleep(every_s)
    return value


def _end(process: Process | None) -> str:
    """Kill a process, and return its output, unless others hold it open."""
    if process is None:
        return ""
    process.kill()
    try:
        return str(process.communicate(timeout=10))
    except subprocess.TimeoutExpired:
        return ""
