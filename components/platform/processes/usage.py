"""What a process and its descendants use: time, processor time, and memory at most.

In a container of its own (cgroup version 2) the cgroup counts for all of them. Otherwise the process tree is looked at,
which misses daemons, because they lost their parent. Memory is sampled by a thread: the kernel's own maximum,
memory.peak, counts cached files, too, so that a step which reads many of them seems to need its whole limit.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from components.platform.processes.cgroup import own_cgroup

SAMPLE_S = 1.0
_MAX_SHARE = 0.01
"""Share of a processor's time that samples take at most. One of a process of 1.4 GB takes 28 ms."""
_UNREADABLE = (OSError, KeyError, ValueError)
"""Errors of a file in /proc or /sys that is missing, or that another kernel, such as gVisor's, writes otherwise."""
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Usage:
    """What was used.

    Attributes:
        seconds: time that passed.
        processor_seconds: user and system time.
        peak_memory_bytes: most memory at a time, without cached files; spikes between samples are seen only within one
            process.
    """

    seconds: float
    processor_seconds: float
    peak_memory_bytes: int


class _Source(Protocol):
    """Where the figures come from."""

    def sample(self) -> tuple[float, int]:
        """Return the processor seconds so far, and the bytes of memory in use. OSError if there are no figures."""

    def limit_peak(self, peak_bytes: int) -> int:
        """Return a peak of memory, or a smaller one that the kernel knows to be the highest."""


class UsageMeter:
    """Measures from its creation until the end of the block. Samples take a hundredth of a processor at most."""

    def __init__(self) -> None:
        self._source = _choose_source()
        self._begun_s = time.monotonic()
        self._lock = threading.Lock()
        self._processor_s = 0.0
        self._peak_bytes = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="usage", daemon=True)

    def read(self) -> Usage:
        """Return what was used so far."""
        self._sample()
        largest = max(_high_water_bytes(), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)
        peak = self._source.limit_peak(max(self._peak_bytes, largest))
        return Usage(time.monotonic() - self._begun_s, self._processor_s, peak)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        took_s = 0.0
        while not self._ended.wait(max(SAMPLE_S, took_s / _MAX_SHARE)):
            begun_s = time.monotonic()
            self._sample()
            took_s = time.monotonic() - begun_s

    def _sample(self) -> None:
        with self._lock, suppress(*_UNREADABLE):
            processor_s, memory_bytes = self._source.sample()
            self._processor_s = max(self._processor_s, processor_s)
            self._peak_bytes = max(self._peak_bytes, memory_bytes)


def _choose_source() -> _Source:
    with suppress(*_UNREADABLE):
        if cgroup := own_cgroup():
            return _Cgroup(cgroup)
    return _ProcessTree()


class _Cgroup(_Source):
    """A cgroup of version 2 that has only this process tree in it."""

    _CACHES = ("active_file", "inactive_file", "slab_reclaimable")

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._before_s = 0.0
        self._before_s = self.sample()[0]

    def sample(self) -> tuple[float, int]:
        processor_s = self._table("cpu.stat")["usage_usec"] / 1e6 - self._before_s
        stat = self._table("memory.stat")
        return processor_s, self._number("memory.current") - sum(stat.get(name, 0) for name in self._CACHES)

    def limit_peak(self, peak_bytes: int) -> int:
        try:
            return min(peak_bytes, self._number("memory.peak"))
        except _UNREADABLE:  # Linux before 5.19
            return peak_bytes

    def _number(self, name: str) -> int:
        return int((self._directory / name).read_text())

    def _table(self, name: str) -> dict[str, int]:
        lines = (self._directory / name).read_text().splitlines()
        return {key: int(value) for key, _blank, value in (line.partition(" ") for line in lines)}


class _ProcessTree(_Source):
    """This process and its descendants, by /proc."""

    def sample(self) -> tuple[float, int]:
        own = sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        descendants, ticks = _descendants(os.getpid())
        return own + ticks / _TICKS, sum(map(_memory_bytes, (os.getpid(), *descendants)))

    def limit_peak(self, peak_bytes: int) -> int:
        return peak_bytes


def _descendants(root: int) -> tuple[list[int], int]:
    """Return the descendants of a process, and the clock ticks of processors that they and their ended children used.

    The parent does not count these yet: it counts children that it has waited for.
    """
    children: dict[int, list[tuple[int, int]]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, ValueError):
                # The name of the program, in parentheses, may contain anything.
                fields = Path("/proc", name, "stat").read_text(errors="replace").rpartition(")")[2].split()
                ticks = sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime
                children.setdefault(int(fields[1]), []).append((int(name), ticks))
    found: list[int] = []
    total = 0
    parents = [root]
    while parents:
        for process, ticks in children.get(parents.pop(), ()):
            found.append(process)
            parents.append(process)
            total += ticks
    return found, total


def _memory_bytes(process: int) -> int:
    """Return a process' share of the memory that it and others have mapped; without pages of files where that is not
    readable (another user's); 0 if it has ended."""
    with suppress(OSError, ValueError):
        return _kilobytes(process, "smaps_rollup", "Pss:") << 10
    with suppress(OSError, ValueError):
        _size, resident, shared, *_others = map(int, Path(f"/proc/{process}/statm").read_text().split())
        return (resident - shared) * _PAGE_BYTES
    return 0


def _high_water_bytes() -> int:
    """Return the most memory of this process; ru_maxrss would be that of the process that started it, if it is more."""
    with suppress(OSError, ValueError):
        return _kilobytes(os.getpid(), "status", "VmHWM:") << 10
    return 0


def _kilobytes(process: int, file: str, key: str) -> int:
    """Return a value in a file of /proc. OSError if it is not readable, ValueError if there is no such key."""
    for line in Path(f"/proc/{process}/{file}").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1])
    raise ValueError(key)
