"""Counts the instructions that a program executes, with the processor's performance counters or under valgrind.

Performance counters run at full speed and also count cycles, but most virtual machines have none. Callgrind translates
the program and takes about fifty times as long; its count is identical in each run as long as the program behaves
identically.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from components.platform.errors import UserError

_PROBE_TIMEOUT_S = 60.0
_SUMMARY = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Count:
    """Instructions executed in user mode, and the processor's cycles; None if the machine does not count them."""

    instructions: int
    cycles: int | None


@dataclass(frozen=True)
class Counter:
    """A program that runs another program and counts.

    program: absolute path. repeats: number of counted runs; the minimum of each count is used, because disturbances
    only add. parallel: whether parallel runs do not disturb the counts.
    """

    name: Literal["perf", "callgrind"]
    program: Path
    repeats: int
    parallel: bool

    def command(self, figures: Path, children: bool = False) -> list[str]:
        """Return the prefix of a command that writes the command's count to the file `figures`.

        Args:
            children: whether the processes that the command starts count, too; perf always counts them.
        """
        if self.name == "perf":
            events = "instructions:u,cycles:u"
            return [str(self.program), "stat", "-x", ",", "-e", events, "-o", str(figures), "--"]
        each = ".%p" if children else ""  # a file for each process
        return [
            str(self.program),
            "--tool=callgrind",
            "-q",
            "--vgdb=no",
            *(["--trace-children=yes"] if children else []),
            f"--callgrind-out-file={figures}{each}",
            f"--log-file={self.log(figures)}",
        ]

    def log(self, figures: Path) -> Path | None:
        """Return the file with the counter's own messages about a command; None if they are on its standard error."""
        return None if self.name == "perf" else figures.with_name(f"{figures.name}.log")

    def read(self, figures: Path, children: bool = False) -> Count:
        """Read the count in `figures`; `children` as of the command. UserError if there is none."""
        paths = [figures]
        if children and self.name == "callgrind":
            paths = [path for path in figures.parent.glob(f"{figures.name}.*") if path.suffix[1:].isdigit()]
        texts = [path.read_text(encoding="utf-8", errors="replace") for path in paths if path.is_file()]
        counts = [read_perf(text) if self.name == "perf" else read_callgrind(text) for text in texts]
        counted = [count for count in counts if count is not None]
        if not counted:
            raise UserError(f"{self.program} counted nothing", "run it by hand; install it again if it fails")
        return Count(sum(count.instructions for count in counted), counted[0].cycles)


def find_counter() -> Counter:
    """Return perf if this machine counts instructions for it, else callgrind. UserError without either."""
    perf = shutil.which("perf")
    if perf is not None and _works(counter := Counter("perf", Path(perf), 3, parallel=False)):
        return counter
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise UserError(
            "cannot count instructions: no perf counters, and valgrind is not installed",
            "sudo apt-get install valgrind",
        )
    return Counter("callgrind", Path(valgrind), 1, parallel=True)


def read_perf(text: str) -> Count | None:
    """Parse the output of `perf stat -x ,`: lines of value, unit, event, ...; None unless instructions were counted.

    Each event occurs once for each kind of core of the processor (cpu_core/instructions/u, cpu_atom/...).
    """
    sums: dict[str, int] = {}
    for line in text.splitlines():
        fields = line.split(",")
        for event in ("instructions", "cycles"):
            if len(fields) > 2 and fields[0].isdecimal() and event in fields[2]:
                sums[event] = sums.get(event, 0) + int(fields[0])
    # If perf may count but the machine has no counters, some kernels report 0.
    return Count(sums["instructions"], sums.get("cycles") or None) if sums.get("instructions") else None


def read_callgrind(text: str) -> Count | None:
    """Parse the line "summary:" or "totals:" of a callgrind.out file; None if it has neither."""
    match = _SUMMARY.search(text)
    return Count(int(match[1]), None) if match else None


def _works(counter: Counter) -> bool:
    with tempfile.TemporaryDirectory() as directory:
        figures = Path(directory) / "figures"
        command = [*counter.command(figures), "true"]
        try:
            done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=_PROBE_TIMEOUT_S)
            return done.returncode == 0 and read_perf(figures.read_text(encoding="utf-8")) is not None
        except (OSError, subprocess.SubprocessError):
            return False
