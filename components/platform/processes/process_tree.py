"""A command and all its descendants, which end together: also daemons, which left its session and lost their parent.

For programs of users (build tools, benchmarks), which may start servers. Compiles are started by reaper.py, which takes
a tenth of the time, and kills what remains at once.
"""

from __future__ import annotations

import codecs
import errno
import io
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from components.platform.processes import tree_supervisor
from components.platform.processes.confinement import Confinement

_MAX_STOP_S = tree_supervisor.GRACE_S + tree_supervisor.KILL_S + 10.0


class ProcessTree:
    """A running command and its descendants.

    Args:
        command: a program's name or path, and arguments.
        cwd: working directory; None for that of this process.
        environment: variables of the command; None for those of this process.
        stdin: file to read; None for /dev/null.
        stdout: a file descriptor, or subprocess.PIPE.
        stderr: a file descriptor, or subprocess.STDOUT.
        confinement: what the command may do.

    Raises:
        FileNotFoundError: there is no such program.
    """

    def __init__(
        self,
        command: Sequence[str],
        cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
        stdin: Path | None = None,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.STDOUT,
        confinement: Confinement = Confinement(),  # noqa: B008
    ) -> None:
        variables = os.environ if environment is None else environment
        if os.sep not in command[0] and shutil.which(command[0], path=variables.get("PATH")) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
        self.command = list(command)
        self._report = os.memfd_create("report")
        script = [sys.executable, "-I", "-S", tree_supervisor.__file__, str(os.getpid()), str(self._report)]
        script.append(json.dumps(confinement) if confinement.writable else "")
        try:
            with open(stdin or os.devnull, "rb") as stdin_stream:
                self._process = subprocess.Popen(
                    [*script, *command],
                    cwd=cwd,
                    env=variables,
                    stdin=stdin_stream,
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                    pass_fds=[self._report],
                )
        except BaseException:
            os.close(self._report)
            raise
        self._supervisor = os.pidfd_open(self._process.pid)

    def fileno(self) -> int:
        """Return a descriptor that is readable as soon as the tree has ended."""
        return self._supervisor

    def lines(self) -> Iterator[str]:
        """Yield the lines of stdout, which must be subprocess.PIPE, as they come, until the tree has ended.

        A process of another user, which cannot be killed, may hold the pipe open longer.
        """
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
        rest: list[str] = []  # parts of a line without an end, which may be long
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        poll.register(self, select.POLLIN)
        while data := os.read(pipe, 1 << 16) if pipe in {ready for ready, _ in poll.poll()} else b"":
            *lines, last = decoder.decode(data).split("\n")
            for line in lines:
                yield "".join((*rest, line, "\n"))
                rest.clear()
            rest.append(last)
        if text := "".join((*rest, decoder.decode(b"", final=True))):
            yield text

    def wait(self) -> int:
        """Wait for the end of the tree; return the command's exit status, if negative the number of a signal."""
        return self._process.wait()

    def left_running(self) -> list[str]:
        """Return ID and command line of each process that the command left, after the end of the tree."""
        size = os.fstat(self._report).st_size
        return os.pread(self._report, size, 0).decode("utf-8", "replace").splitlines()

    def terminate(self) -> None:
        """Send SIGTERM to all processes of the tree, and SIGKILL to those that remain after a grace period."""
        self._process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """End the tree if it has not ended, and release its resources."""
        self.terminate()
        try:
            self._process.wait(_MAX_STOP_S)
        except subprocess.TimeoutExpired:  # the supervisor hangs, too
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self._report >= 0:
            os.close(self._report)
            os.close(self._supervisor)
            self._report = self._supervisor = -1


def describe_left(subject: str, left: Sequence[str]) -> str:
    """Return a sentence about the processes that a command left running, for the user."""
    shown = "; ".join(f"process {line}" for line in left[:3])
    more = f" and {len(left) - 3} more" if len(left) > 3 else ""
    return f"{subject} ended and left running, which were stopped: {shown}{more}"
