"""Runs child processes and leaves none behind, no matter how they or this process end.

Each child leads a new session and process group. All its processes are killed on a timeout, on an exception, when the
child itself has ended (it may have left children), and when this process dies, even by SIGKILL (see fork_server.py).
Programs of users may take some time to end, and are told what they leave running: see process_tree.py.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.platform.errors import UserError
from components.platform.processes import sandbox
from components.platform.processes.confinement import Confinement
from components.platform.processes.process_tree import ProcessTree
from components.platform.processes.reaper import REAPER, Child, environment_without_secrets

STDERR_TAIL_BYTES = 16_384
"""Size of the kept end of a child's stderr, which is where the error is."""
_SLICE_S = 5.0
"""A wait that takes twice as long as this was asked for was stopped, or its machine was."""
_NO_SPACE = "No space left on device"
_EXCEPTION = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): ", re.MULTILINE)
_FRAMING = (" ", "\t", "Graph execution error", "Detected at node", "<stack traces", "Original stack trace", "Node:")
"""Beginnings of lines of TensorFlow's error messages that do not say what is wrong."""


@dataclass(frozen=True)
class Completed:
    """The result of a child that ended by itself.

    Attributes:
        returncode: exit status; if negative, the number of the signal that ended the child.
        stderr: the last STDERR_TAIL_BYTES, decoded.
        wall_s: seconds from before the start to the end of the child.
        left_running: with `daemons`, ID and command line of each process that the child left running.
    """

    returncode: int
    stderr: str
    wall_s: float
    left_running: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """Why it failed: the message of the last Python exception in its stderr, or the last line."""
        *_before, last = _EXCEPTION.split(self.stderr)
        lines = [line for line in last.splitlines() if line and not line.startswith(_FRAMING)]
        if not lines:
            return f"status {self.returncode}"
        return lines[0] if _before else lines[-1]

    def require_disk_space(self, directory: Path) -> None:
        """Raise OSError (ENOSPC) about `directory` if the child said that the disk is full.

        That is no failure of what it worked on: everything after it would fail as well.
        """
        if _NO_SPACE in self.stderr:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory))


class ProcessTimeout(Exception):
    """The child exceeded its time limit and was killed with its whole group."""

    def __init__(self, timeout_s: float, stderr: str) -> None:
        super().__init__(timeout_s, stderr)
        self.timeout_s = timeout_s
        self.stderr = stderr


class ProcessKilled(Exception):
    """`kill_running` killed the child, because the work that it was part of was cancelled."""


def run(
    argv: Sequence[str | Path],
    timeout_s: float,
    stdout: int = subprocess.DEVNULL,
    cwd: Path | None = None,
    stdin: Path | None = None,
    writable: Path | None = None,
    thread: int | None = None,
    daemons: bool = False,
    makes_programs: bool = False,
) -> Completed:
    """Run `argv` and wait for its end. Thread-safe.

    Args:
        timeout_s: time limit; time in which this process was stopped does not count.
        stdout: a file descriptor, or subprocess.DEVNULL.
        stdin: an absolute path; None for /dev/null.
        writable: confines the child if the machine supports it: the child can write only below this directory and has
            no network, see sandbox.py. None: not confined.
        thread: the thread that the child works for, by which `kill_running` finds it; None for the calling one.
        daemons: for programs of users: they may make sessions, and get some time to end. Costs 30 ms.
        makes_programs: a confined child may also change modes of files, and write large files, as linkers do.

    Raises:
        ProcessTimeout: the child exceeded the time limit.
        ProcessKilled: `kill_running` killed the child.
        UserError: there is no such program.
    """
    program = Path(argv[0])
    if not os.access(program, os.X_OK) or program.is_dir():
        raise UserError(f"{program} is not a program that can be executed", "check the path of the toolchain")
    started_s = time.perf_counter()
    stderr = os.memfd_create("stderr")
    try:
        with _registered(thread or threading.get_ident()) as call:
            arguments = [str(argument) for argument in argv]
            confinement = Confinement()
            if writable is not None:
                confinement = sandbox.confinement(writable, timeout_s, makes_programs, daemons)
            child: Child | ProcessTree
            if daemons:
                environment = environment_without_secrets()
                child = ProcessTree(arguments, cwd, environment, stdin, stdout, stderr, confinement)
            else:
                child = REAPER.start(arguments, stdout, stderr, cwd, stdin, confinement)
            try:
                ended = _wait(call, child, timeout_s)
            finally:
                left = tuple(child.left_running())
                child.close()
        wall_s = time.perf_counter() - started_s
        if not ended:
            raise ProcessTimeout(timeout_s, _tail(stderr))
        if call.killed:
            raise ProcessKilled(str(program))
        return Completed(child.wait(), _tail(stderr), wall_s, left)
    finally:
        os.close(stderr)


def signal_name(number: int) -> str:
    """Return the name of a signal with its meaning."""
    try:
        return f"{signal.Signals(number).name} ({signal.strsignal(number)})"
    except ValueError:
        return f"signal {number}"


def restore_sigchld() -> None:
    """Restore the default handling of SIGCHLD, so that the kernel keeps the exit statuses of children.

    Ray with its subreaper ignores SIGCHLD in each of its processes. Waiting for a child then finds none, which Python
    reports as status 0, so that every failed compile seems to have succeeded. Children inherit this, so clang loses the
    statuses of its own children in the same way. This calls the C library, because Python's signal() works only in the
    main thread.
    """
    ctypes.CDLL(None).signal(signal.SIGCHLD, ctypes.c_void_p(int(signal.SIG_DFL)))


def kill_running(threads: Collection[int] | None = None) -> None:
    """Kill the children that work for `threads` (threading.get_ident() numbers; None: all)."""
    # Under the lock, so that no leader is reaped and its number reused between the check and the kill.
    with _LOCK:
        for call in _CALLS:
            if threads is None or call.thread in threads:
                call.killed = True
                if call.child is not None:
                    call.child.terminate()


def _wait(call: _Call, child: Child | ProcessTree, timeout_s: float) -> bool:
    """Wait until the child has ended, which `kill_running` finds meanwhile. Return False if it runs after `timeout_s`.

    Time in which this process was stopped, as a machine that sleeps or migrates is, does not count.
    """
    left_s = timeout_s
    poll = select.poll()
    poll.register(child, select.POLLIN)
    with _LOCK:
        call.child = child
        if call.killed:
            child.terminate()
    try:
        while left_s > 0:
            slice_s, before_s = min(left_s, _SLICE_S), time.monotonic()
            if poll.poll(slice_s * 1000):
                return True
            left_s -= min(time.monotonic() - before_s, 2 * slice_s)
        return False
    finally:
        with _LOCK:
            call.child = None


def _tail(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    data = os.pread(descriptor, STDERR_TAIL_BYTES, max(0, size - STDERR_TAIL_BYTES))
    return data.decode("utf-8", "replace").strip()


@dataclass(eq=False)
class _Call:
    """A call of `run`.

    Attributes:
        thread: the thread whose work it is.
        child: the child that the call waits for, None before and after.
        killed: whether `kill_running` has killed the child, or must kill it once it has started.
    """

    thread: int
    child: Child | ProcessTree | None = None
    killed: bool = False


_CALLS: set[_Call] = set()
"""The calls of `run` that have not returned."""
_LOCK = threading.Lock()


@contextlib.contextmanager
def _registered(thread: int) -> Iterator[_Call]:
    """Register a call before its child is started: otherwise a kill in between would miss the child."""
    call = _Call(thread)
    with _LOCK:
        _CALLS.add(call)
    try:
        yield call
    finally:
        with _LOCK:
            _CALLS.remove(call)
