"""Turns signals such as SIGTERM into exceptions that end a step, but not inside TensorFlow or `delay_interrupts`.

Python runs a signal's handler between any two bytecode instructions, also those of Python code that TensorFlow's C++
code calls to convert values to tensors. An exception that is raised there ends the process with SIGABRT ("Check failed:
!PyErr_Occurred()"), and no `finally` block runs, or TensorFlow drops it. Therefore the handler waits until TensorFlow
has returned, however long that takes; long steps have a deadline (shutdown_deadline.py).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType

EXIT_INTERRUPTED = 128 + signal.SIGINT
TERMINATING = (signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU)
"""Signals that end a step in order: of job runners, of a terminal or a connection that closes, of a limit of CPU time.
SIGQUIT (Ctrl-\\) ends it at once, for users whom Ctrl-C is too slow; the next run removes what it leaves."""
RETRY_S = 0.01
"""How often it is checked whether a pending exception may be raised."""
_CONTINUES = "the same command continues"
_PACKAGES = ("tensorflow.", "keras.", "tf_agents.")
_blocks = 0
"""Number of `delay_interrupts` blocks that the main thread is in."""
_pending: Callable[[], BaseException] | None = None
_terminated = False


class Terminated(KeyboardInterrupt):
    """Raised on a signal in TERMINATING.

    Attributes:
        number: the signal.
    """

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__()
        self.number = number


def interrupted_status(error: BaseException) -> int:
    """Return the exit status for the signal that interrupted a command."""
    return 128 + error.number if isinstance(error, Terminated) else EXIT_INTERRUPTED


@contextmanager
def continues_when_rerun() -> Iterator[None]:
    """Mark the interrupts of a block whose work is kept, so that the same command continues it: see `continues`."""
    try:
        yield
    except KeyboardInterrupt as error:
        error.add_note(_CONTINUES)
        raise


def continues(error: BaseException) -> bool:
    """Return whether the command that an interrupt ended continues when it is run again."""
    return _CONTINUES in getattr(error, "__notes__", ())


def raise_on_signals() -> None:
    """Raise Terminated on TERMINATING and KeyboardInterrupt on SIGINT, in the main thread and outside TensorFlow.

    A process that ignores SIGINT or SIGHUP, such as a job that a shell started in the background or with nohup,
    continues to ignore it.
    """
    global _terminated
    _terminated = False
    for number in TERMINATING:
        if number == signal.SIGTERM or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _terminate)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda _number, frame: raise_soon(KeyboardInterrupt, frame))


def exit_on_signals(status: int) -> None:
    """End the process with `status` on further signals that `raise_on_signals` handles: its command has ended.

    An exception would only print a traceback out of Python's shutdown. The reaper (platform/processes) does what is
    left.
    """
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number in (signal.SIGINT, *TERMINATING):
        if signal.getsignal(number) not in (signal.SIG_IGN, signal.SIG_DFL):
            signal.signal(number, lambda *_: os._exit(status))


def raise_soon(error: Callable[[], BaseException], frame: FrameType | None) -> None:
    """Raise an exception from a signal's handler, as soon as TensorFlow and `delay_interrupts` blocks have returned.

    Until then SIGALRM and the real-time timer are used. If several exceptions wait, the first one is raised.

    Args:
        error: makes the exception.
        frame: the frame that the handler interrupted.
    """
    global _pending
    _pending = _pending or error
    _raise_pending(signal.SIGALRM, frame)


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Delay the exceptions of signals until the block has ended, where the main thread runs it.

    For a few lines that must not be torn apart, such as starting a child and recording it.
    """
    global _blocks
    if threading.current_thread() is not threading.main_thread():  # handlers run in the main thread only
        yield
        return
    _blocks += 1
    try:
        yield
    finally:
        _blocks -= 1


def _terminate(number: int, frame: FrameType | None) -> None:
    # A second signal must not interrupt the clean-up that the first one started. It is not ignored by SIG_IGN, which
    # children would inherit.
    global _terminated
    if not _terminated:
        _terminated = True
        raise_soon(partial(Terminated, number), frame)


def _raise_pending(_number: int, frame: FrameType | None) -> None:
    global _pending
    if _blocks or _runs_tensorflow(frame):
        signal.signal(signal.SIGALRM, _raise_pending)
        signal.setitimer(signal.ITIMER_REAL, RETRY_S)
        return
    error, _pending = _pending, None
    if error is not None:
        raise error()


def _runs_tensorflow(frame: FrameType | None) -> bool:
    """Return whether a function of TensorFlow is on the stack."""
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(_PACKAGES):
            return True
        frame = frame.f_back
    return False
