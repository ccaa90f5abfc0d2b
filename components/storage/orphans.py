"""Directories whose maker is gone (SIGKILL, a power cut): it held a lock on each, and nobody does any more.

A lock rather than a process number in the name: numbers mean nothing between containers that share a volume.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path


def remove_orphans(directories: Iterable[Path], older_than_s: float = 0.0) -> None:
    """Removes those that nobody holds a lock on (flock), as well as it goes.

    Args:
        older_than_s: younger ones stay, where a maker may not have locked its own yet.
    """
    for left in directories:
        try:
            descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if not older_than_s or time.time() - os.fstat(descriptor).st_mtime > older_than_s:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left, ignore_errors=True)
        except BlockingIOError:
            pass  # its maker is alive
        finally:
            os.close(descriptor)
