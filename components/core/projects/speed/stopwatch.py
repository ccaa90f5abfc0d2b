"""Takes the processor time of programs and compares two builds by it.

Time is what users of a program notice, and what executed instructions only approximate: a reload that hits the cache
costs little, one that stalls the processor costs much. It varies from run to run, so both builds run alternately many
times, and the change has an interval: a percentile bootstrap over the pairs of runs (Kalibera and Jones 2013, "Rigorous
benchmarking in reasonable time", doi:10.1145/2491894.2464160). The median of a pair's ratio is compared, because
whatever disturbs a run only makes it longer.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.core.projects.speed.types import TimeChange
from components.platform.errors import UserError

Times = NDArray[np.float64]
RESAMPLES = 10_000

# The kernel sums the time that a process had a processor to the nanosecond; only its division between user and system
# is sampled. So their sum is taken, which includes the start of the program.
_STOPWATCH = """
import os, sys
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(child, 0)
with open(sys.argv[1], "w") as figures:
    figures.write(repr(usage.ru_utime + usage.ru_stime))
code = os.waitstatus_to_exitcode(status)
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


def stopwatch_command(figures: Path) -> list[str]:
    """Return the prefix of a command that writes the command's processor time to the file `figures`."""
    return [sys.executable, "-I", "-S", "-c", _STOPWATCH, str(figures)]


def read_stopwatch(figures: Path) -> float:
    """Return the processor time in `figures`, in seconds. UserError if there is none."""
    try:
        return float(figures.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise UserError(
            "the processor time of a program was not taken", "run it by hand; it may kill its parent"
        ) from None


def compare_times(stock: Times, policy: Times, seed: int = 0) -> list[TimeChange]:
    """Compare the times of each program.

    Args:
        stock, policy: float64 [repeats, programs], seconds; the same row is of runs next to each other.
        seed: makes the intervals the same in every call.

    Returns:
        A change for each program.
    """
    ratios = np.log(policy / stock)
    return [
        TimeChange(
            stock_s=float(np.median(stock[:, program])),
            policy_s=float(np.median(policy[:, program])),
            repeats=len(stock),
            change_percent=_percent(np.median(ratios[:, program])),
            interval_percent=_interval(ratios[:, [program]], seed),
        )
        for program in range(stock.shape[1])
    ]


def mean_time_change(stock: Times, policy: Times, seed: int = 0) -> TimeChange:
    """Compare the geometric means over all programs; arguments as of `compare_times`. Times are sums of medians."""
    ratios = np.log(policy / stock)
    return TimeChange(
        stock_s=float(np.median(stock, axis=0).sum()),
        policy_s=float(np.median(policy, axis=0).sum()),
        repeats=len(stock),
        change_percent=_percent(np.median(ratios, axis=0).mean()),
        interval_percent=_interval(ratios, seed),
    )


def _interval(ratios: Times, seed: int) -> tuple[float, float]:
    """Return the 95% interval of the mean over programs of medians over repeats; `ratios` is [repeats, programs]."""
    generator = np.random.default_rng(seed)
    repeats, programs = ratios.shape
    means = np.zeros(RESAMPLES)
    for program in range(programs):
        drawn = generator.integers(0, repeats, size=(RESAMPLES, repeats))
        means += np.median(ratios[:, program][drawn], axis=1)
    low, high = np.percentile(means / programs, [2.5, 97.5])
    return _percent(low), _percent(high)


def _percent(logarithm: float) -> float:
    return 100.0 * float(np.expm1(logarithm))
