"""Lock that allows one run at a time in an output directory."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.directory import make_directory

ORPHANS_WAIT_S = 30.0


@contextmanager
def run_lock(run: Path) -> Iterator[int]:
    """Hold the lock of the run directory `run`; yield its file descriptor, which is passed on to the steps.

    Steps inherit the descriptor, so the lock lasts until the last of them ends, even if the run itself was killed and
    its steps are still cleaning up. A new run then waits for them up to ORPHANS_WAIT_S.

    Raises:
        UserError: another run uses the directory.
    """
    path = run / ".steps" / "lock"
    make_directory(path.parent, run)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _acquire(descriptor, run)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield descriptor
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, run: Path) -> None:
    deadline_s = time.monotonic() + ORPHANS_WAIT_S
    reported = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            if Path("/proc", owner or "?").exists() or time.monotonic() > deadline_s:
                raise UserError(
                    f"another mlgo run (process {owner or 'unknown'}) uses {run}",
                    "wait for it, stop it, or choose another --output",
                ) from None
        if not reported:
            say("waiting for the steps of a killed run to end")
            reported = True
        time.sleep(0.2)
