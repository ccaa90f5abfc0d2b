"""Runs one child process so that nothing of it is left, however it or we end.

Each child leads a session and process group of its own, and the whole group is killed on a time-out, on an exception,
when the child itself has ended (it may have left children behind), and when this process dies, even by SIGKILL (see
guard.py). Starting and ending costs about 1.7 ms, of which the shell that registers the child is 0.6 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.compiler.guard import GUARD
from components.console import UserError

STDERR_TAIL_BYTES = 16_384
"""What is kept of a child's stderr: its end, for that is where the error is."""


@dataclass(frozen=True)
class Completed:
    """A child that has ended by itself.

    returncode: negative is the number of the signal that ended it. stderr: its last STDERR_TAIL_BYTES, decoded.
    wall_s: seconds from before its start to its end.
    """

    returncode: int
    stderr: str
    wall_s: float


class ProcessTimeout(Exception):
    """The child ran longer than it was allowed to, and was killed with its whole group."""

    def __init__(self, timeout_s: float, stderr: str) -> None:
        super().__init__(timeout_s, stderr)
        self.timeout_s = timeout_s
        self.stderr = stderr


class ProcessKilled(Exception):
    """The child was killed by `kill_running`, because the work that it was part of has been given up."""


def run(
    argv: Sequence[str | Path],
    timeout_s: float,
    stdout: int = subprocess.DEVNULL,
    cwd: Path | None = None,
    stdin: Path | None = None,
    writable: Path | None = None,
) -> Completed:
    """Runs `argv` to its end. Safe to call from several threads.

    Args:
        stdout: a file descriptor, or subprocess.DEVNULL.
        stdin: an absolute path, or /dev/null.
        writable: confines the child where the machine can do that: it writes below this directory only and has no
            network, see sandbox.py. None: not confined.

    Raises:
        ProcessTimeout, ProcessKilled.
        UserError: there is no such program.
    """
    program = Path(argv[0])
    if not os.access(program, os.X_OK) or program.is_dir():
        raise UserError(f"{program} is not a program that can be run", "check the path of the toolchain")
    started_s = time.perf_counter()
    stderr = os.memfd_create("stderr")
    try:
        with _RUNNING.registered() as entry:
            child = GUARD.start([str(argument) for argument in argv], stdout, stderr, cwd, stdin, writable)
            try:
                with _RUNNING.led_by(entry, child.pid):
                    ended = _wait(child.pid, timeout_s)
            finally:
                # The leader is not reaped yet, so its group's number cannot have been given to anybody else.
                _kill_group(child.pid)
                GUARD.forget(child.pid)
                child.wait()
        wall_s = time.perf_counter() - started_s
        if not ended:
            raise ProcessTimeout(timeout_s, _tail(stderr))
        if entry.killed:
            raise ProcessKilled(str(program))
        return Completed(child.returncode, _tail(stderr), wall_s)
    finally:
        os.close(stderr)


def wait_for_children() -> None:
    """Has the kernel keep the exit status of this process's children, whatever a library has told it.

    Ray with its subreaper ignores SIGCHLD in each of its processes. Then waiting for a child finds none, Python takes
    that for status 0, and every compile that fails seems to have succeeded; the child inherits it, and clang's own
    children are lost to it in the same way. By the C library, for Python's signal() is for the main thread alone.
    """
    ctypes.CDLL(None).signal(signal.SIGCHLD, ctypes.c_void_p(int(signal.SIG_DFL)))


def kill_running(threads: Collection[int] | None = None) -> None:
    """Kills the children that `threads` (threading.get_ident() numbers; None: all) are waiting for in `run`."""
    _RUNNING.kill(threads)


def _wait(pid: int, timeout_s: float) -> bool:
    """Waits until the process has ended, without reaping it. False if it has not within `timeout_s`."""
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(descriptor)


def _kill_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _tail(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    data = os.pread(descriptor, STDERR_TAIL_BYTES, max(0, size - STDERR_TAIL_BYTES))
    return data.decode("utf-8", "replace").strip()


@dataclass(eq=False)
class _Entry:
    """A call of `run`. leader: of the group that it waits for, 0 before and after."""

    thread: int
    leader: int = 0
    killed: bool = False


class _Running:
    """The calls of `run` that have not ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: set[_Entry] = set()

    @contextlib.contextmanager
    def registered(self) -> Iterator[_Entry]:
        """Before the child is started: a kill in between would find nothing, and the child would live on."""
        entry = _Entry(threading.get_ident())
        with self._lock:
            self._entries.add(entry)
        try:
            yield entry
        finally:
            with self._lock:
                self._entries.remove(entry)

    @contextlib.contextmanager
    def led_by(self, entry: _Entry, leader: int) -> Iterator[None]:
        with self._lock:
            entry.leader = leader
            if entry.killed:
                _kill_group(leader)
        try:
            yield
        finally:
            with self._lock:
                entry.leader = 0

    def kill(self, threads: Collection[int] | None) -> None:
        # Under the lock: no leader is reaped, and its number given to another, between the look and the kill.
        with self._lock:
            for entry in self._entries:
                if threads is None or entry.thread in threads:
                    entry.killed = True
                    if entry.leader:
                        _kill_group(entry.leader)


_RUNNING = _Running()
