"""One run at a time in an output directory."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from components.console import UserError, say
from components.storage.directory import make_directory

ORPHANS_WAIT_S = 30.0


@contextmanager
def run_lock(run: Path) -> Iterator[int]:
    """Holds the lock of the run directory `run`; yields its file descriptor, to be passed on to the steps.

    Steps inherit the descriptor, so that the lock lasts until the last of them is gone, even when the run itself was
    killed and its steps are still cleaning up: then a new run waits for them a while instead of working beside them.

    Raises:
        UserError: another run works there.
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
    told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            if Path("/proc", owner or "?").exists() or time.monotonic() > deadline_s:
                raise UserError(
                    f"another mlgo run (process {owner or 'unknown'}) is working in {run}",
                    "wait for it, stop it, or choose another --output",
                ) from None
        if not told:
            say("waiting for the steps of a killed run to end")
            told = True
        time.sleep(0.2)
