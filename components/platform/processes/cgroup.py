"""What this process may use of the machine: the limits of its cgroup (version 2), which a container has.

Also tells whether that cgroup is its own: usage.py reads there what was used.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
"""In a container, its own cgroup."""


def available_processors() -> int:
    """Return the number of processors that this process may use, at least 1."""
    processors = len(os.sched_getaffinity(0))
    quota, _blank, period = _limit("cpu.max").partition(" ")
    return min(processors, max(1, math.ceil(int(quota) / int(period)))) if quota.isdigit() else processors


def available_memory() -> int:
    """Return the bytes of memory that this process may use."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _limit("memory.max")
    return min(memory, int(limit)) if limit.isdigit() else memory


def own_cgroup() -> Path | None:
    """Return the directory of the cgroup if it has no other processes than this one and its ancestors.

    That is so at the start of a container's program. It is not on a machine without containers, in a container where
    several programs run, and with cgroups of version 1.
    """
    try:
        members = {int(line) for line in (_CGROUP / "cgroup.procs").read_text().split()}
        (_CGROUP / "memory.current").read_text()  # which the root of all cgroups does not have
    except (OSError, ValueError):
        return None
    ancestors = []
    process = os.getpid()
    with suppress(OSError, ValueError, IndexError):  # a parent has ended
        while process > 0:
            ancestors.append(process)
            process = int(Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[1])
    return _CGROUP if os.getpid() in members <= {*ancestors} else None


def _limit(name: str) -> str:
    """Return the content of a file of the cgroup; "" if there is none, "max" if there is no limit."""
    try:
        return (_CGROUP / name).read_text().strip()
    except OSError:
        return ""
