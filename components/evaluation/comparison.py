"""Comparison of two variants of the same code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from components.core.objectives import Objective


@dataclass(frozen=True)
class Comparison:
    """Values of the same cases under the heuristic (baseline) and under another variant; smaller is better.

    Attributes:
        objective: the objective that the values belong to.
        baseline: [C], value of each case under LLVM's own heuristic.
        other: [C], values of the same cases, in the same order, under the other variant.
        module: int64 [C], the index of each case's module.
    """

    objective: Objective
    baseline: np.ndarray
    other: np.ndarray
    module: np.ndarray

    def __post_init__(self) -> None:
        if not self.baseline.shape == self.other.shape == self.module.shape or self.baseline.ndim != 1:
            raise ValueError(
                f"two variants of the same {self.objective.labels.cases} have different shapes: "
                f"{self.baseline.shape}, {self.other.shape}, {self.module.shape}"
            )

    @property
    def reduction_percent(self) -> float | None:
        """Reduction of all values together in percent; positive is better, None if there is nothing to compare."""
        reduction = self.objective.reduction(self.baseline, self.other)
        return None if reduction is None else 100.0 * reduction

    def to_json(self, seed: int | None = None) -> dict[str, Any]:
        """Return the entry of metrics.json; with `seed` also the bootstrap interval over the modules."""
        labels = self.objective.labels
        entry: dict[str, Any] = {"modules": int(np.unique(self.module).size), labels.cases: int(self.baseline.size)}
        if self.objective.additive:
            entry[f"baseline_{labels.unit}"] = self.baseline.sum().item()
            entry[f"policy_{labels.unit}"] = self.other.sum().item()
        entry["reduction_percent"] = self.reduction_percent
        less, equal, more = (f"{labels.cases}_{direction}" for direction in labels.directions)
        entry[less] = int((self.other < self.baseline).sum())
        entry[equal] = int((self.other == self.baseline).sum())
        entry[more] = int((self.other > self.baseline).sum())
        if seed is not None:
            entry["reduction_percent_ci95"] = self.objective.interval(self.baseline, self.other, self.module, seed)
        return entry


def reduction_percent(baseline_bytes: int, other_bytes: int) -> float | None:
    """Return 100 * (1 - other / baseline); None if the baseline is 0."""
    return 100.0 * (1.0 - other_bytes / baseline_bytes) if baseline_bytes else None
