"""Runs commands of this project that need no TensorFlow without starting an interpreter for each.

`run_command("pipelines", "--help")` is like `python -m pipelines --help`, in a process of its own with the same
environment, directory, output and exit status. But that is forked from a process that has imported their modules
(command_server.py), which takes 0.25 to 0.5 s of processor time each time. The modules that the process imports itself,
its process group, command line and hash seed are therefore not those of a command that a user starts. Tests of these
start an interpreter, and so does the first call of each command in each pytest worker.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.command_server import LARGEST_MESSAGE

ROOT = Path(__file__).parents[2]
_AT_START = ("PYTHON", "LC_", "LANG")
"""Beginnings of the names of variables that the interpreter reads."""


class _Server:
    """A process that commands are forked from; it ends with this process."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [sys.executable, "-m", "tests.support.command_server", str(theirs.fileno())]
            null = subprocess.DEVNULL
            self._process = subprocess.Popen(
                argv, cwd=ROOT, env=environment, stdin=null, stdout=null, pass_fds=[theirs.fileno()]
            )
        self._read: list[str] = json.loads(self._control.recv(LARGEST_MESSAGE))
        self._values = self.variables(environment)
        atexit.register(self._end)

    def _end(self) -> None:
        self._control.close()
        self._process.wait()

    def variables(self, environment: Mapping[str, str]) -> tuple[object, ...]:
        """Return the variables of an environment that the interpreter and the imports read."""
        at_start = {name: value for name, value in environment.items() if name.startswith(_AT_START)}
        return at_start, [environment.get(name) for name in self._read]

    def suits(self, environment: Mapping[str, str]) -> bool:
        """Return whether the imports would be the same in an environment."""
        return self.variables(environment) == self._values

    def run(self, request: Mapping[str, object], streams: tuple[int, int, int], timeout: float) -> int:
        """Run a command; return its exit status, or the negative number of the signal that killed it.

        Raises:
            TimeoutError: after `timeout` seconds; the command is killed.
        """
        answers, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with answers:
            with theirs:
                message = json.dumps(request).encode()
                socket.send_fds(self._control, [message], [*streams, theirs.fileno()])
            process_id, status = int(answers.recv(64)), None
            answers.settimeout(timeout)
            try:
                status = int(answers.recv(64))
            finally:
                if status is None:
                    os.kill(process_id, signal.SIGKILL)
        return os.waitstatus_to_exitcode(status)


_servers: list[_Server] = []
_started: list[object] = []
"""Commands, and variables of environments, for which an interpreter was started."""


def _find_server(command: Sequence[str], environment: Mapping[str, str]) -> _Server | None:
    """Return a server for a command; None for the first one of its kind, and for the first one in its environment."""
    kind = tuple(itertools.takewhile(re.compile(r"[a-z][a-z.-]*").fullmatch, command[:3]))
    unseen: list[object] = [] if kind in _started else [kind]
    server = next((server for server in _servers if server.suits(environment)), None)
    if server is None and _servers and (variables := _servers[0].variables(environment)) not in _started:
        unseen.append(variables)
    _started.extend(unseen)
    if unseen:
        return None
    if server is None:
        server = _Server(environment)
        _servers.append(server)
    return server


def run_command(
    module: str, *arguments: object, cwd: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run `python -m MODULE ARGUMENT...`; the options are those of subprocess.run.

    Raises:
        subprocess.TimeoutExpired: after `timeout` seconds.
    """
    environment, directory = dict(os.environ if env is None else env), Path.cwd() if cwd is None else cwd.absolute()
    assert directory == ROOT or not (directory / "components").exists(), "it would import modules of its directory"
    command = [sys.executable, "-m", module, *map(str, arguments)]
    server = _find_server(command[2:], environment)
    if server is None:
        return subprocess.run(command, capture_output=True, text=True, cwd=directory, env=environment, timeout=timeout)
    request = {"command": command[2:], "environment": environment, "directory": str(directory)}
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        try:
            status = server.run(request, (0, stdout.fileno(), stderr.fileno()), timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired(command, timeout) from None
        for stream in (stdout, stderr):
            stream.seek(0)
        return subprocess.CompletedProcess(command, status, stdout.read(), stderr.read())
