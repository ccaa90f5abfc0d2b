"""Cleans up after this process if it dies, even by SIGKILL: kills its children's groups, removes its scratch files.

The reaper is a shell that only reads a pipe, of which this process holds the write end. Each child registers its
process group there before it executes the compiler; when the last write end closes because this process died, the
reaper kills the groups that are still registered. PR_SET_PDEATHSIG does not suffice: it signals one process, not its
group, and does so as soon as the thread that started it ends.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from components.platform.processes import sandbox
from components.platform.storage.shared_state.stale_directories import remove_stale

MEMORY_FILE_SYSTEM = Path("/dev/shm")
_PREFIX = "mlgo-scratch-"
_MIN_AGE_S = 60.0
MEMORY_BYTES = 1 << 30
"""Required free space there: containers often have 64 MB of it, which the samples of a few large modules fill."""

# Registers itself with the reaper, whose pipe is its stdin, disables core files (a crashing compiler of 100 MB leaves
# large ones), and executes the command. $0 is the command's stdin.
_CHILD_SCRIPT = 'ulimit -c 0; echo "+ $$" >&0; exec "$@" <"$0"'
# $0 is the scratch directory. Keeps the living groups as " 12 34 "; the input ends when the parent process dies.
_REAPER_SCRIPT = """
groups=' '
while read -r change group; do
  case "$change$groups" in
    +*) groups="$groups$group " ;;
    -*" $group "*) groups="${groups%% $group *} ${groups#* $group }" ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group" 2>/dev/null; done
rm -rf -- "$0"
"""


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


def environment_of_compilers() -> dict[str, str]:
    """Return the variables of this process' environment that compilers and our own children may see."""
    return {name: value for name, value in environment_without_secrets().items() if _NEEDED.fullmatch(name)}


class Reaper:
    """The reaper of this process, started with the first child; a forked copy of this process gets its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shell: subprocess.Popen[bytes] | None = None
        self._pipe = self._scratch_lock = -1
        self._scratch = Path()

    def start(
        self,
        argv: Sequence[str],
        stdout: int,
        stderr: int,
        cwd: Path | None,
        stdin: Path | None = None,
        writable: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start `argv` in a new session and process group that is registered with the reaper.

        Args:
            stdin: the file that the child reads; None for an empty stdin.
            writable: the only directory below which the child may write, see sandbox.py; None for no confinement.
        """
        pipe = self._write_end()

        def start(command: Sequence[str]) -> subprocess.Popen[bytes]:
            # Without preexec_fn the child is started by vfork, which is fast and safe in a process with much memory and
            # many threads.
            return subprocess.Popen(
                ["/bin/sh", "-c", _CHILD_SCRIPT, str(stdin or os.devnull), *command],
                stdin=pipe,
                stdout=stdout,
                stderr=stderr,
                cwd=cwd,
                start_new_session=True,
                env=environment_of_compilers(),
            )

        return sandbox.start_command(argv, writable, start, _kill)

    def forget(self, leader: int) -> None:
        """Unregister a group that was killed; must be called before its leader is waited for."""
        os.write(self._write_end(), b"- %d\n" % leader)

    def scratch(self) -> Path:
        """Return a private scratch directory, in memory if there is room; it is removed when this process ends."""
        self._write_end()
        return self._scratch

    def _write_end(self) -> int:
        with self._lock:
            if self._shell is None or self._shell.poll() is not None:
                parent = _memory_directory() or Path(tempfile.gettempdir())
                _remove_stale_scratch(parent)
                self._scratch = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
                self._scratch_lock = os.open(self._scratch, os.O_RDONLY | os.O_DIRECTORY)
                # Held as long as this process lives: see _remove_stale_scratch.
                fcntl.flock(self._scratch_lock, fcntl.LOCK_SH)
                read_end, self._pipe = os.pipe()
                # In a separate session, so that Ctrl-C does not end it before this process; holds none of our pipes
                # open.
                devnull = subprocess.DEVNULL
                self._shell = subprocess.Popen(
                    ["/bin/sh", "-c", _REAPER_SCRIPT, str(self._scratch)],
                    stdin=read_end,
                    stdout=devnull,
                    stderr=devnull,
                    start_new_session=True,
                    cwd="/",
                )
                os.close(read_end)
            return self._pipe

    def close(self) -> None:
        """End the reaper, which kills the remaining groups and removes the scratch directory."""
        shell, self._shell = self._shell, None
        if shell is not None:
            os.close(self._pipe)
            os.close(self._scratch_lock)
            with contextlib.suppress(KeyboardInterrupt):  # it ends by itself
                shell.wait()

    def after_fork(self) -> None:
        """Drop the parent's reaper in a forked copy and close its pipe, so that it notices the parent's end."""
        self._lock = threading.Lock()
        if self._shell is not None:
            os.close(self._pipe)
            os.close(self._scratch_lock)
            self._shell.returncode = 0  # not a child of this process, so it cannot be waited for
            self._shell = None


def _kill(child: subprocess.Popen[bytes]) -> None:
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


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
