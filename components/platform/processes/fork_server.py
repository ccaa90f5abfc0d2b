"""Starts compiles, and ends all their processes with them. A script, which reaper.py runs once in each process.

Each command is a fork of this small process, which leads a session, is confined and then executes the command. When it
ends, its group is killed. A confined command's processes cannot leave the group. One that is not confined may: its
processes become children of this one when they lose their parents (PR_SET_CHILD_SUBREAPER, Linux 3.4), and those that
belong to no running command are killed. All ends when the process that runs this script dies, even by SIGKILL, whose
scratch directory is then removed.

Arguments: a descriptor of a socket, whose messages are the commands; the scratch directory. A message has no content,
but descriptors: a file with the command in JSON, whose characters are bytes, its directory, stdin, stdout and stderr,
and a socket of its own. On that the
exit status is written after the end of all processes, or the number of an error if it does not start. When the other
side closes it, if only for writing, the command is killed.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

if __name__ == "__main__":
    sys.path.append(os.path.dirname(os.path.abspath(__file__)).rpartition("/components/")[0])

from components.platform.processes.confinement import Confinement, execute, prepare

MESSAGE = b"run"
_DESCRIPTORS = 6
_MAX_FILES = 65536
_PR_SET_CHILD_SUBREAPER = 36
_SWEEP_S = 5.0
"""Limit for killing processes that left their groups; those in an uninterruptible wait end later."""


class _Command:
    """A running command: the leader of a session and process group, and the socket of who waits for it."""

    def __init__(self, leader: int, control: socket.socket) -> None:
        self.leader = leader
        self.control = control
        self.exit = os.pidfd_open(leader)

    def kill(self) -> None:
        # The leader has not been waited for, so the number of its group cannot have been reused.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.leader, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # before its setsid
            os.kill(self.leader, signal.SIGKILL)


class _Server:
    def __init__(self, requests: socket.socket) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        # Ray ignores SIGCHLD in its workers, Python ignores the other two, and the commands would inherit it.
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        # Each command takes two descriptors here.
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        limit = _MAX_FILES if limit == resource.RLIM_INFINITY else min(limit, _MAX_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
        requests.set_inheritable(False)  # whoever has it can start commands that are not confined
        self._requests = requests
        self._poll = select.poll()
        self._poll.register(requests, select.POLLIN)
        self._by_control: dict[int, _Command] = {}
        self._by_exit: dict[int, _Command] = {}
        self._immortal: set[int] = set()

    def serve(self) -> None:
        """Start and end commands until nobody can send one."""
        while True:
            for ready, _ in self._poll.poll():
                if ready in self._by_exit:
                    self._end(self._by_exit[ready])
                elif ready in self._by_control:
                    self._poll.unregister(ready)
                    self._by_control.pop(ready).kill()
                elif ready == self._requests.fileno() and not self._receive():
                    return

    def stop(self) -> None:
        """Kill all processes."""
        for command in self._by_exit.values():
            command.kill()
        self._by_exit.clear()
        self._sweep()

    def _receive(self) -> bool:
        descriptors = array.array("i")
        # socket.recv_fds ignores the flag, without which a command would inherit them.
        room = socket.CMSG_SPACE(_DESCRIPTORS * descriptors.itemsize)
        message, data, _, _ = self._requests.recvmsg(len(MESSAGE), room, socket.MSG_CMSG_CLOEXEC)
        if not message:
            return False
        for _level, _kind, content in data:
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
        if len(descriptors) == _DESCRIPTORS:
            control = socket.socket(fileno=descriptors.pop())
            request, directory, *streams = descriptors
            self._start(request, directory, streams, control)
        for descriptor in descriptors:  # not all, if there are too many open files: then the other side sees an end
            os.close(descriptor)
        return True

    def _start(self, request: int, directory: int, streams: list[int], control: socket.socket) -> None:
        # As much as possible before the fork: in the copy, each page that Python touches costs a copy.
        size = os.fstat(request).st_size
        task = json.loads(os.pread(request, size, 0), object_hook=_decoded)
        server = os.getpid()
        try:
            prepared = prepare(Confinement(*task["confinement"]))
            leader = os.fork()
        except OSError as error:
            _answer(control, {"error": error.errno, "name": error.filename})
            return
        if leader == 0:
            try:
                os.setsid()
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                os.fchdir(directory)
                execute(task["command"], task["environment"], prepared, server)
            except OSError as error:
                _answer(control, {"error": error.errno, "name": error.filename})
            finally:
                os._exit(127)
        prepared.close()
        command = _Command(leader, control)
        self._by_control[control.fileno()] = self._by_exit[command.exit] = command
        self._poll.register(control, select.POLLIN)
        self._poll.register(command.exit, select.POLLIN)

    def _end(self, command: _Command) -> None:
        del self._by_exit[command.exit]
        self._poll.unregister(command.exit)
        os.close(command.exit)
        command.kill()
        _, status = os.waitpid(command.leader, 0)
        self._sweep()
        if self._by_control.pop(command.control.fileno(), None):
            self._poll.unregister(command.control)
        _answer(command.control, {"status": os.waitstatus_to_exitcode(status)})

    def _sweep(self) -> None:
        """Kill and wait for the children that belong to no running command, and their descendants."""
        deadline_s = time.monotonic() + _SWEEP_S
        leaders = {command.leader for command in self._by_exit.values()}
        spared = leaders | self._immortal
        while strays := [child for child in _children() if child not in spared and _session(child) not in leaders]:
            for child in strays:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(child, signal.SIGKILL)
            for child in strays:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child, os.WNOHANG)
            if time.monotonic() > deadline_s:
                self._immortal.update(strays)
                return
            time.sleep(0.0002)


def _decoded(task: dict[str, Any]) -> dict[str, Any]:
    """Return a task, or its environment, with the texts as this process decodes bytes."""

    def decode(value: Any) -> Any:
        if isinstance(value, list):
            return [decode(item) for item in value]
        return os.fsdecode(value.encode("latin-1")) if isinstance(value, str) else value

    return {decode(key): decode(value) for key, value in task.items()}


def _answer(control: socket.socket, answer: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # nobody waits for it
        control.send(json.dumps(answer).encode(), socket.MSG_NOSIGNAL)
    control.close()


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
            return [int(number) for number in file.read().split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        return _children_by_parent()


def _children_by_parent() -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            with contextlib.suppress(OSError), open(f"/proc/{entry}/stat", "rb") as file:
                # pid (name) state parent ...; the name may contain anything, even parentheses: proc(5)
                if int(file.read().rpartition(b")")[2].split()[1]) == os.getpid():
                    found.append(int(entry))
    return found


def _session(process: int) -> int:
    try:
        return os.getsid(process)
    except OSError:
        return 0


def main(requests: int, scratch: str) -> NoReturn:
    """Serve the process at the other end of the socket until it dies, then remove its scratch directory."""
    server = _Server(socket.socket(fileno=requests))
    try:
        server.serve()
    finally:
        server.stop()
        os.execv("/bin/rm", ["rm", "-rf", "--", scratch])


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
