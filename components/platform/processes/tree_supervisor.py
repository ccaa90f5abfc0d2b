"""Runs a command and ends every process that it leaves behind. A script, which process_tree.py runs.

A process that loses its parent becomes a child of this one (PR_SET_CHILD_SUBREAPER, Linux 3.4, needs no privileges), so
that no descendant leaves the tree, whichever session or process group it makes. Everything ends when the command ends,
on SIGTERM, and when the process that runs this script dies. The script imports little, because it starts with each
command: that takes 20 ms.

Arguments: the process ID of the parent; a file descriptor, to which a line is written for each process that the command
left running: its ID and command line; the command.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import time

FINISH_S = 2.0
"""Time for what the command left behind to end by itself: the end of a pipeline, a tool that writes its cache."""
GRACE_S = 5.0
"""Time between SIGTERM and SIGKILL."""
KILL_S = 10.0
"""Time for killed processes to end. Those of another user (sudo) cannot be killed, others may wait for a disk."""
_POLL_S = 0.02
_MAX_SHOWN = 200
_PR_SET_CHILD_SUBREAPER = 36
_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class _Tree:
    """The command and all its descendants."""

    def __init__(self, parent: int, confinement: str, command: list[str]) -> None:
        # No core files: they are large, and this process ends by the signal that ended the command.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._stopping = False
        self._wakeup, write_end = os.pipe()
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        for number in (*_STOP, signal.SIGCHLD):
            signal.signal(number, self._note)
        self._parent = os.pidfd_open(parent)
        if os.getppid() != parent:
            raise ProcessLookupError
        if confinement:
            self._command = _start_confined(confinement, command)
        else:
            # Python ignores these two, and the command would inherit it.
            defaults = (signal.SIGPIPE, signal.SIGXFSZ)
            self._command = os.posix_spawnp(command[0], command, os.environ, setsid=True, setsigdef=defaults)
        self.status: int | None = None

    def wait(self) -> None:
        """Wait for the end of the command, or for a reason to end it."""
        while self.status is None and not self.stopping(None):
            self.reap()

    def stopping(self, timeout_s: float | None) -> bool:
        """Wait for a signal or the timeout; return whether everything must end."""
        ready, _, _ = select.select([self._wakeup, self._parent], [], [], timeout_s)
        if self._wakeup in ready:
            os.read(self._wakeup, 4096)
        return self._stopping or self._parent in ready

    def reap(self) -> None:
        """Wait for all children that have ended."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == self._command:
                    self.status = os.waitstatus_to_exitcode(ended[1])

    def living(self) -> list[int]:
        """Return the descendants of this process that have not ended."""
        self.reap()
        children: dict[int, list[int]] = {}
        dead = set()
        for entry in os.listdir("/proc"):
            if entry.isdecimal():
                with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as file:
                    # pid (name) state parent ...; the name may contain anything, even parentheses: proc(5)
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
                    children.setdefault(int(parent), []).append(int(entry))
                    if state in (b"Z", b"X"):
                        dead.add(int(entry))
        descendants = list(children.get(os.getpid(), ()))
        for process in descendants:  # grows: descendants of descendants
            descendants += children.get(process, ())
        return [process for process in descendants if process not in dead]

    def ends_within(self, seconds: float, number: int = 0, again: bool = False) -> bool:
        """Send a signal to all descendants, wait, and return whether they have ended.

        Args:
            number: of the signal, 0 for none.
            again: send it to descendants that are found later, too.
        """
        deadline_s = time.monotonic() + seconds
        signalled: set[int] = set()
        while living := self.living():
            for process in living:
                if number and (again or not signalled):
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.kill(process, number)
            signalled.update(living)
            if time.monotonic() > deadline_s or (not number and self.stopping(0)):
                return False
            time.sleep(_POLL_S)
        return True

    def _note(self, number: int, _frame: object) -> None:
        self._stopping = self._stopping or number in _STOP


def _start_confined(confinement: str, command: list[str]) -> int:
    """Start a command as confinement.py confines it; return its process ID."""
    import json

    sys.path.append(os.path.dirname(os.path.abspath(__file__)).rpartition("/components/")[0])
    from components.platform.processes.confinement import Confinement, execute, prepare

    parent = os.getpid()
    prepared = prepare(Confinement(*json.loads(confinement)))
    if (child := os.fork()) == 0:
        try:
            os.setsid()
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
                signal.signal(number, signal.SIG_DFL)
            execute(command, os.environ, prepared, parent)
        except OSError as error:
            os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        finally:
            os._exit(127)
    return child


def _shown(process: int) -> str:
    """Return the process' ID and command line, without characters that a terminal would interpret."""
    try:
        with open(f"/proc/{process}/cmdline", "rb") as file:
            text = file.read(4 * _MAX_SHOWN).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        text = ""
    text = "".join(character if character.isprintable() else "?" for character in text)
    return f"{process} {text if len(text) <= _MAX_SHOWN else text[:_MAX_SHOWN] + '…'}"


def main(parent: int, report: int, confinement: str, command: list[str]) -> int:
    """Run the command. Return its exit status, a negative signal number, or 127 if it cannot be executed."""
    os.set_inheritable(report, False)
    try:
        tree = _Tree(parent, confinement, command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127
    tree.wait()
    if tree.status is not None and not tree.ends_within(FINISH_S):
        left = "".join(f"{_shown(process)}\n" for process in tree.living())
        os.write(report, left.encode())
    if not tree.ends_within(GRACE_S, signal.SIGTERM):
        tree.ends_within(KILL_S, signal.SIGKILL, again=True)
    return -signal.SIGTERM if tree.status is None else tree.status


if __name__ == "__main__":
    result = main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:])
    if result < 0:  # end as the command did
        signal.signal(-result, signal.SIG_DFL) if -result not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -result)
    os._exit(result)
