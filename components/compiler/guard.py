"""Cleans up behind this process if it dies, even by SIGKILL: kills its children's groups, removes its scratch files.

A guard is a shell that does nothing but read a pipe of which this process holds the writing end. Each child registers
its process group there before it turns into the compiler; when the last writing end closes with us, the guard kills the
groups that are still registered. PR_SET_PDEATHSIG would not do: it is sent to one process, not to its group, and
already when the thread that started it ends.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from components.compiler import sandbox
from components.storage.orphans import remove_orphans

_MEMORY_FILE_SYSTEM = Path("/dev/shm")
_PREFIX = "mlgo-scratch-"
_YOUNG_S = 60.0
_MEMORY_BYTES = 1 << 30
"""What must be free there: containers often have 64 MB of it, which the samples of a few large modules fill."""

# Registers itself with the guard, whose pipe is its stdin, allows no core files (a crashing compiler of 100 MB leaves
# large ones), and becomes the command. $0 is what it reads.
_START = 'ulimit -c 0; echo "+ $$" >&0; exec "$@" <"$0"'
# $0 is the scratch directory. Keeps the living groups as " 12 34 "; the end of the input is our death.
_GUARD = """
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


_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|PRIVATE|_AUTH|^AWS_|^MLGO_NOTIFY_URL$", re.IGNORECASE)
"""Names of variables that a compile does not get: a compiler that a module took over must not find a token there."""


class Guard:
    """The guard of this process, which is started with the first child; a forked copy of us gets one of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shell: subprocess.Popen[bytes] | None = None
        self._pipe = self._held = -1
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
        """Starts `argv` in a session and group of its own, registered, with an empty stdin or the file `stdin`.

        It is confined to writing below `writable`, if that is given, see sandbox.py.
        """
        confined = "none" if writable is None else sandbox.kind()
        if confined == "bubblewrap" and writable is not None:
            argv = [*sandbox.bubblewrap_arguments(writable), *argv]
        registering = self._descriptor()

        def start() -> subprocess.Popen[bytes]:
            # No preexec_fn: so the child is started by vfork, which is quick and safe in a process with much memory and
            # many threads.
            return subprocess.Popen(
                ["/bin/sh", "-c", _START, str(stdin or os.devnull), *argv],
                stdin=registering, stdout=stdout, stderr=stderr, cwd=cwd, start_new_session=True,
                env={name: value for name, value in os.environ.items() if not _SECRET.search(name)},
            )  # fmt: skip

        if confined == "landlock" and writable is not None:
            return sandbox.start_confined(writable, start, _kill)
        return start()

    def forget(self, leader: int) -> None:
        """Takes a group that was killed off the guard's list; to be called before its leader is reaped."""
        os.write(self._descriptor(), b"- %d\n" % leader)

    def scratch(self) -> Path:
        """A directory of this process's own, in memory where there is room for it; removed at the process's end."""
        self._descriptor()
        return self._scratch

    def _descriptor(self) -> int:
        with self._lock:
            if self._shell is None or self._shell.poll() is not None:
                place = _scratch_place() or Path(tempfile.gettempdir())
                _sweep(place)
                self._scratch = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=place))
                self._held = os.open(self._scratch, os.O_RDONLY | os.O_DIRECTORY)
                fcntl.flock(self._held, fcntl.LOCK_SH)  # for as long as this process lives: see _sweep
                reading, self._pipe = os.pipe()
                # Far from our terminal, so that Ctrl-C does not end it before us, and holding none of our pipes open.
                silent = subprocess.DEVNULL
                self._shell = subprocess.Popen(
                    ["/bin/sh", "-c", _GUARD, str(self._scratch)],
                    stdin=reading, stdout=silent, stderr=silent, start_new_session=True, cwd="/",
                )  # fmt: skip
                os.close(reading)
            return self._pipe

    def close(self) -> None:
        """Ends the guard, which kills and removes what there still is."""
        if self._shell is not None:
            os.close(self._pipe)
            os.close(self._held)
            self._shell.wait()
            self._shell = None

    def after_fork(self) -> None:
        """In a forked copy: forgets the parent's guard, and lets go of its pipe, so that it notices its end."""
        self._lock = threading.Lock()
        if self._shell is not None:
            os.close(self._pipe)
            os.close(self._held)
            self._shell.returncode = 0  # not a child of this process: nothing to wait for
            self._shell = None


def _kill(child: subprocess.Popen[bytes]) -> None:
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _sweep(place: Path) -> None:
    """Removes the scratch directories of processes that died together with their guards: nobody holds their locks.

    Whoever kills a process with all its descendants kills the guard, too, as Ray's subreaper and containers do.
    """
    remove_orphans(place.glob(f"{_PREFIX}*"), older_than_s=_YOUNG_S)


def _scratch_place() -> Path | None:
    """A memory file system with room for scratch files; None for the usual temporary directory."""
    try:
        status = os.statvfs(_MEMORY_FILE_SYSTEM)
    except OSError:
        return None
    room = status.f_bavail * status.f_frsize >= _MEMORY_BYTES
    return _MEMORY_FILE_SYSTEM if room and os.access(_MEMORY_FILE_SYSTEM, os.W_OK) else None


GUARD = Guard()
atexit.register(GUARD.close)
os.register_at_fork(after_in_child=GUARD.after_fork)
