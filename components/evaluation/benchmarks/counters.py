"""Counts what a program executes: by the processor's own counters, or under valgrind.

Counters of the processor count at full speed and know cycles, too, but most virtual machines have none. Callgrind
translates the program and takes some fifty times as long; its figure is the same in each run, to the instruction, as
long as the program does the same.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from components.core.console import UserError

_PROBE_TIMEOUT_S = 60.0
_SUMMARY = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Count:
    """Instructions executed in user mode, and the processor's cycles meanwhile, where the machine counts them."""

    instructions: int
    cycles: int | None


@dataclass(frozen=True)
class Counter:
    """A program that runs another and counts.

    program: its absolute path. repeats: how often a run is counted; the least of each figure is taken, for what
    disturbs a run only adds. parallel: whether runs beside each other leave the figures alone.
    """

    name: Literal["perf", "callgrind"]
    program: Path
    repeats: int
    parallel: bool

    def command(self, figures: Path) -> list[str]:
        """What the command goes behind, so that its count is in the file `figures` afterwards."""
        if self.name == "perf":
            events = "instructions:u,cycles:u"
            return [str(self.program), "stat", "-x", ",", "-e", events, "-o", str(figures), "--"]
        return [
            str(self.program),
            "--tool=callgrind",
            "-q",
            "--vgdb=no",
            f"--callgrind-out-file={figures}",
            f"--log-file={figures}.log",
        ]

    def read(self, figures: Path) -> Count:
        """The count in `figures`. UserError if there is none."""
        try:
            text = figures.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            text = ""
        counted = read_perf(text) if self.name == "perf" else read_callgrind(text)
        if counted is None:
            raise UserError(f"{self.program} counted nothing", "run it by hand; install it again if it fails")
        return counted


def find_counter() -> Counter:
    """perf if this machine counts instructions for it, else callgrind. UserError if valgrind is missing, too."""
    perf = shutil.which("perf")
    if perf is not None and _counts(counter := Counter("perf", Path(perf), 3, parallel=False)):
        return counter
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise UserError(
            "nothing counts the instructions of programs here: perf does not, and valgrind is missing",
            "sudo apt-get install valgrind",
        )
    return Counter("callgrind", Path(valgrind), 1, parallel=True)


def read_perf(text: str) -> Count | None:
    """What `perf stat -x ,` says: lines of value, unit, event, ...; None unless instructions were counted.

    An event is there once for each kind of core that a processor has (cpu_core/instructions/u, cpu_atom/...).
    """
    sums: dict[str, int] = {}
    for line in text.splitlines():
        fields = line.split(",")
        for event in ("instructions", "cycles"):
            if len(fields) > 2 and fields[0].isdecimal() and event in fields[2]:
                sums[event] = sums.get(event, 0) + int(fields[0])
    # Where perf is allowed to count but the machine does not, some kernels say 0.
    return Count(sums["instructions"], sums.get("cycles") or None) if sums.get("instructions") else None


def read_callgrind(text: str) -> Count | None:
    """What a callgrind.out file says in its line "summary:" or "totals:"; None if it has neither."""
    found = _SUMMARY.search(text)
    return Count(int(found[1]), None) if found else None


def _counts(counter: Counter) -> bool:
    with tempfile.TemporaryDirectory() as directory:
        figures = Path(directory) / "figures"
        command = [*counter.command(figures), "true"]
        try:
            done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_PROBE_TIMEOUT_S)
            return done.returncode == 0 and read_perf(figures.read_text(encoding="utf-8")) is not None
        except (OSError, subprocess.SubprocessError):
            return False
