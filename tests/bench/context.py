"""Context that every benchmark gets."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from components.core.formats.policy import load_policy_info

SMALL: dict[str, int] = {
    "repeats": 1,
    "slots": 4,
    "modules_per_slot": 1,
    "requests_per_slot": 5,
    "modules": 3,
    "samples": 2,
    "flip_compiles": 2,
    "objects": 40,
    "simulations": 1,
}
"""Attributes of a context that tries whether the benchmarks run; their figures mean nothing."""


@dataclass(frozen=True)
class BenchContext:
    """The artifacts of a finished run, and a scratch directory.

    Invariants: every directory but `scratch` is a finished artifact; `scratch` is empty and removed afterwards.

    Attributes:
        run: the run directory (logs, PPO's working directory).
        repeats: number of timings; medians are reported.
        slots: slots of the simulated Ray cluster; the goals are for 512.
        modules_per_slot: modules of an iteration on that cluster, by slots; 12 are about 30 s of the slots.
        requests_per_slot: requests that the head's work is measured on, by slots.
        modules, samples: modules of a training iteration, and compiles per module; 0 for the problem's default.
        flip_compiles: compiles with flips of each module, for `credit`.
        objects: number of objects to extract bitcode from, for `corpus`.
        simulations: number of series of retrainings of each kind, for `verdicts`; of evaluations four times as many.
    """

    run: Path
    scratch: Path
    repeats: int = 3
    slots: int = 512
    modules_per_slot: int = 12
    requests_per_slot: int = 20
    modules: int = 0
    samples: int = 0
    flip_compiles: int = 8
    objects: int = 544
    simulations: int = 300

    @property
    def training(self) -> Path:
        return self.run / "training"

    @property
    def corpus(self) -> Path:
        return self.run / "corpus"

    @property
    def trace(self) -> Path:
        return self.run / "trace"

    @property
    def vocab(self) -> Path:
        return self.run / "vocab"

    @property
    def warmstart(self) -> Path:
        return self.run / "warmstart"

    @property
    def policy(self) -> Path:
        return self.run / "policy"

    @property
    def release(self) -> Path:
        return self.run / "release"

    @property
    def problem(self) -> str:
        """The run's optimization problem."""
        return load_policy_info(self.policy).problem

    def key(self, figure: str) -> str:
        """Return the key of a figure that every problem has: the bare name for inlining, else with a prefix."""
        return figure if self.problem == "inlining" else f"{self.problem}_{figure}"

    def ratio(self, left: Callable[[], object], right: Callable[[], object]) -> float:
        """Return the median ratio of left()'s wall time to right()'s.

        The two are called in turns, so that a machine whose speed drifts slows both.
        """
        return statistics.median(_seconds(left) / _seconds(right) for _ in range(self.repeats))


def _seconds(work: Callable[[], object]) -> float:
    started_s = time.perf_counter()
    work()
    return time.perf_counter() - started_s
