"""Turns SIGTERM and Ctrl-C into exceptions that end a step, but not while TensorFlow or an `uninterrupted` block runs.

Python runs a signal's handler between any two bytecode instructions, also those of Python code that TensorFlow's C++
code calls to convert values to tensors. An exception that is raised there ends the process with SIGABRT ("Check failed:
!PyErr_Occurred()"), and no `finally` block runs, or TensorFlow drops it. Therefore the handler waits until TensorFlow
has returned, however long that takes; long steps have a deadline (shutdown_deadline.py).
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_TERMINATED = 128 + signal.SIGTERM
RETRY_S = 0.01
"""How often a waiting handler looks whether it may raise."""
_PACKAGES = ("tensorflow.", "keras.", "tf_agents.")
_blocks = 0
"""Number of `uninterrupted` blocks that the main thread is in."""


class Terminated(KeyboardInterrupt):
    """Raised on SIGTERM."""


def interrupted_status(error: BaseException) -> int:
    """Return the exit status for the signal that interrupted a command."""
    return EXIT_TERMINATED if isinstance(error, Terminated) else EXIT_INTERRUPTED


def raise_on_signals() -> None:
    """Raise Terminated on SIGTERM and KeyboardInterrupt on SIGINT, in the main thread and outside TensorFlow.

    A process that ignores SIGINT, such as a job that a shell started in the background, continues to ignore it.
    """
    signal.signal(signal.SIGTERM, _Handler(Terminated))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _Handler(KeyboardInterrupt))


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay the exceptions of signals until the block has ended, where the main thread runs it.

    For a few lines that must not be torn apart, such as starting a child and recording it.
    """
    global _blocks
    counted = threading.current_thread() is threading.main_thread()
    _blocks += counted
    try:
        yield
    finally:
        _blocks -= counted


class _Handler:
    """Handler of a signal that raises `error`.

    While it waits, it handles SIGALRM, too: TensorFlow and `uninterrupted` must not run in a step with its own timer.
    """

    def __init__(self, error: type[KeyboardInterrupt]) -> None:
        self.error = error

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            # A second signal must not interrupt the clean-up that the first one started.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if _blocks or _runs_tensorflow(frame):
            signal.signal(signal.SIGALRM, self)
            signal.setitimer(signal.ITIMER_REAL, RETRY_S)
            return
        raise self.error


def _runs_tensorflow(frame: FrameType | None) -> bool:
    """Return whether a function of TensorFlow is on the stack."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(_PACKAGES):
            return True
        frame = frame.f_back
    return False
