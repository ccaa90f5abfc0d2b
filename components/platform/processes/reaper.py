"""Starts child processes by a server, which ends all their processes with them and removes this process' scratch files.

The server (fork_server.py) reads a socket of this process; when that ends because this process died, even by SIGKILL,
the server kills what still runs. PR_SET_PDEATHSIG does not suffice: it signals one process, not its descendants, and
does so as soon as the thread that started it ends.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from components.platform.processes import fork_server
from components.platform.processes.confinement import Confinement
from components.platform.storage.shared_state.stale_directories import remove_stale

MEMORY_FILE_SYSTEM = Path("/dev/shm")
_PREFIX = "mlgo-scratch-"
_MIN_AGE_S = 60.0
MEMORY_BYTES = 1 << 30
"""Required free space there: containers often have 64 MB of it, which the samples of a few large modules fill."""

_RETRY_S = 0.002
_LAST_WORDS = 65536
"""Size of the longest answer of the server."""

_SECRETS = re.compile(
    r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|(?:^|_|API)KEY|PRIVATE|_AUTH|_PAT$|_PWD$|WEBHOOK|_DSN$|(?:DB|DATABASE)_URL$"
    r"|^AWS_|^AZURE_|^KUBECONFIG$|^NETRC$|^MLGO_NOTIFY_URL$",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(r"://[^/\s@]+:[^/\s@]+@")
"""A URL with a password."""
_NEEDED = re.compile(
    r"PATH|HOME|TMPDIR|TZ|LANG|LANGUAGE|LC_\w+|TERM|USER|LOGNAME|SHELL|SOURCE_DATE_EPOCH|LD_\w+|LIBRARY_PATH|VIRTUAL_ENV"
    r"|(?:MLGO|PYTHON|TF|XLA|OMP|ASAN|UBSAN|LLVM|QEMU)\w*"
)
"""Environment variables of compilers: a module of a corpus from elsewhere controls them, so they get no others."""


def environment_without_secrets() -> dict[str, str]:
    """Return the environment of this process without tokens, passwords and the like, for programs of users."""
    variables = os.environ.items()
    return {k: v for k, v in variables if not (_SECRETS.search(k) or _SECRET_VALUE.search(v))}


class Child:
    """A command that the server runs, with all its descendants."""

    def __init__(self, control: socket.socket, words: Sequence[str]) -> None:
        self._control = control
        self._words = words
        self._status: int | None = None

    def fileno(self) -> int:
        """Return a descriptor that is readable as soon as all processes have ended."""
        return self._control.fileno()

    def left_running(self) -> list[str]:
        """Return nothing: a compile that leaves processes is not told."""
        return []

    def terminate(self) -> None:
        """Kill all processes."""
        with contextlib.suppress(OSError):  # they have ended
            self._control.shutdown(socket.SHUT_WR)

    def wait(self) -> int:
        """Return the exit status after the end of all processes; if negative, it is the number of a signal.

        Raises:
            OSError: the command could not be started.
            ChildProcessError: the server died, and with it the command's first process.
        """
        if self._status is None:
            answer = self._control.recv(_LAST_WORDS)
            if not answer:
                raise ChildProcessError(f"the process that runs {self._words[0]} was killed")
            told = json.loads(answer)
            if "error" in told:
                raise OSError(told["error"], os.strerror(told["error"]), told.get("name") or self._words[0])
            self._status = int(told["status"])
        return self._status

    def close(self) -> None:
        """Kill all processes and wait for their end."""
        self.terminate()
        try:
            self.wait()
        finally:
            self._control.close()


@contextlib.contextmanager
def scratch_directory(prefix: str) -> Iterator[Path]:
    """Make a scratch directory for a confined command, and remove it whatever the command left there."""
    directory = tempfile.mkdtemp(prefix=prefix, dir=REAPER.scratch())
    try:
        yield Path(directory)
    finally:
        try:
            shutil.rmtree(directory, ignore_errors=True)
        except RecursionError:  # a tree of a thousand directories
            subprocess.run(["/bin/rm", "-rf", "--", directory], stderr=subprocess.DEVNULL, check=False)


class Reaper:
    """The server of this process, started with the first child; a forked copy of this process gets its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._server: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None
        self._scratch_lock = -1
        self._scratch = Path()

    def start(
        self,
        command: Sequence[str],
        stdout: int,
        stderr: int,
        cwd: Path | None,
        stdin: Path | None = None,
        confinement: Confinement = Confinement(),  # noqa: B008
    ) -> Child:
        """Start a command in a session and process group of its own.

        Args:
            stdin: the file that the child reads; None for an empty stdin.
        """
        requests = self._connection()
        task = {
            "command": [_bytes(word) for word in command],
            "environment": {
                _bytes(k): _bytes(v) for k, v in environment_without_secrets().items() if _NEEDED.fullmatch(k)
            },
            "confinement": [_bytes(value) if isinstance(value, str) else value for value in confinement],
        }
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        request = os.memfd_create("command")
        opened = [request]
        try:
            with theirs, open(request, "wb", closefd=False) as stream:
                stream.write(json.dumps(task).encode())
                stream.flush()
                opened.append(os.open(cwd or os.curdir, os.O_PATH | os.O_DIRECTORY))
                opened.append(os.open(stdin or os.devnull, os.O_RDONLY))
                if stdout == subprocess.DEVNULL:
                    opened.append(stdout := os.open(os.devnull, os.O_WRONLY))
                descriptors = [*opened[:3], stdout, stderr, theirs.fileno()]
                try:
                    _send(requests, descriptors)
                except BrokenPipeError:  # the server was killed, and may not have been waited for
                    _send(self._connection(dead=requests), descriptors)
        except BaseException:
            control.close()
            raise
        finally:
            for descriptor in opened:
                os.close(descriptor)
        return Child(control, command)

    def scratch(self) -> Path:
        """Return a private scratch directory, in memory if there is room; it is removed when this process ends."""
        self._connection()
        return self._scratch

    def _connection(self, dead: socket.socket | None = None) -> socket.socket:
        with self._lock:
            if self._server is not None and self._requests is dead is not None:
                self._server.wait()
            if self._requests is None or self._server is None or self._server.poll() is not None:
                parent = _memory_directory() or Path(tempfile.gettempdir())
                _remove_stale_scratch(parent)
                self._scratch = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
                self._scratch_lock = os.open(self._scratch, os.O_RDONLY | os.O_DIRECTORY)
                # Held as long as this process lives: see _remove_stale_scratch.
                fcntl.flock(self._scratch_lock, fcntl.LOCK_SH)
                self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with theirs:
                    # In a separate session, so that Ctrl-C does not end it before this process.
                    self._server = subprocess.Popen(
                        [sys.executable, "-I", "-S", fork_server.__file__, str(theirs.fileno()), str(self._scratch)],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        start_new_session=True,
                        pass_fds=[theirs.fileno()],
                        cwd="/",
                    )
            return self._requests

    def close(self) -> None:
        """End the server, which kills the remaining processes and removes the scratch directory."""
        server, self._server = self._server, None
        if server is not None:
            self._disconnect()
            with contextlib.suppress(KeyboardInterrupt):  # it ends by itself
                server.wait()

    def after_fork(self) -> None:
        """Drop the parent's server in a forked copy and close its socket, so that it notices the parent's end."""
        self._lock = threading.Lock()
        if self._server is not None:
            self._disconnect()
            self._server.returncode = 0  # not a child of this process, so it cannot be waited for
            self._server = None

    def _disconnect(self) -> None:
        requests, self._requests = self._requests, None
        if requests is not None:
            requests.close()
        os.close(self._scratch_lock)


def _send(requests: socket.socket, descriptors: Sequence[int]) -> None:
    """Send descriptors to the server. The kernel limits those that are on their way to those that may be open."""
    while True:
        try:
            socket.send_fds(requests, [fork_server.MESSAGE], descriptors)
            return
        except OSError as error:
            if error.errno != errno.ETOOMANYREFS:
                raise
            time.sleep(_RETRY_S)


def _bytes(text: str) -> str:
    """Return the text whose characters are the bytes of an argument."""
    return os.fsencode(text).decode("latin-1")


def _remove_stale_scratch(parent: Path) -> None:
    """Remove the scratch directories of processes that died together with their reapers: their locks are free.

    Ray's subreaper and containers kill a process with all its descendants, including the reaper.
    """
    remove_stale(parent.glob(f"{_PREFIX}*"), older_than_s=_MIN_AGE_S)


def _memory_directory() -> Path | None:
    """Return a memory file system with room for scratch files, or None if there is none."""
    try:
        status = os.statvfs(MEMORY_FILE_SYSTEM)
    except OSError:
        return None
    room = status.f_bavail * status.f_frsize >= MEMORY_BYTES
    return MEMORY_FILE_SYSTEM if room and os.access(MEMORY_FILE_SYSTEM, os.W_OK) else None


REAPER = Reaper()
atexit.register(REAPER.close)
os.register_at_fork(after_in_child=REAPER.after_fork)
