"""What this process may use of the machine: the limits of its cgroup (version 2), which a container has."""

from __future__ import annotations

import math
import os
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


def _limit(name: str) -> str:
    """Return the content of a file of the cgroup; "" if there is none, "max" if there is no limit."""
    try:
        return (_CGROUP / name).read_text().strip()
    except OSError:
        return ""
