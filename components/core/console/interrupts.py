"""Turns SIGTERM and Ctrl-C into exceptions that end a step, but not while TensorFlow runs.

Python runs a signal's handler between any two bytecode instructions, also those of Python code that TensorFlow's C++
code calls to convert values to tensors. An exception that is raised there ends the process with SIGABRT ("Check failed:
!PyErr_Occurred()"), and no `finally` block runs, or TensorFlow drops it. Therefore the handler waits until TensorFlow
has returned, however long that takes; long steps have a deadline (shutdown_deadline.py).
"""

from __future__ import annotations

import signal
from types import FrameType

EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_TERMINATED = 128 + signal.SIGTERM
RETRY_S = 0.01
"""How often a waiting handler looks whether TensorFlow has returned."""
_PACKAGES = ("tensorflow.", "keras.", "tf_agents.")


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


class _Handler:
    """Handler of a signal that raises `error`.

    While it waits for TensorFlow, it handles SIGALRM, too: TensorFlow must not run in a step with a timer of its own.
    """

    def __init__(self, error: type[KeyboardInterrupt]) -> None:
        self.error = error

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM:
            # A second signal must not interrupt the clean-up that the first one started.
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if _runs_tensorflow(frame):
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
