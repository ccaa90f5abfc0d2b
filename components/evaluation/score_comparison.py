"""Scores of the same functions under two variants, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from components.evaluation.bootstrap import mean_reduction_interval
from components.problems.scores import Float64, logs, reduction


@dataclass(frozen=True)
class ScoreComparison:
    """Scores of the same functions under the heuristic (baseline) and under something else; less is better.

    Attributes:
        baseline: float64 [F].
        other: float64 [F], of the same functions, in the same order, under the other variant.
        module: int64 [F], which module each function is of.
    """

    baseline: np.ndarray
    other: np.ndarray
    module: np.ndarray

    def __post_init__(self) -> None:
        if not self.baseline.shape == self.other.shape == self.module.shape or self.baseline.ndim != 1:
            raise ValueError(
                f"two variants of the same functions: {self.baseline.shape}, {self.other.shape}, {self.module.shape}"
            )

    @property
    def log_factors(self) -> Float64:
        """float64 [F]: log of each score over its baseline, see `problems/scores.py`."""
        return logs(self.other) - logs(self.baseline)

    @property
    def reduction_percent(self) -> float | None:
        """100 * (1 - geometric mean of the factors); positive is better, None where there is no function."""
        return 100.0 * reduction(self.log_factors) if self.baseline.size else None

    def to_json(self, seed: int | None = None) -> dict[str, Any]:
        """As it stands in metrics.json; with `seed`, also the bootstrap interval over the modules.

        There are no sums: scores of different functions do not add up."""
        entry: dict[str, Any] = {
            "modules": int(np.unique(self.module).size),
            "functions": int(self.baseline.size),
            "reduction_percent": self.reduction_percent,
            "functions_lower": int((self.other < self.baseline).sum()),
            "functions_equal": int((self.other == self.baseline).sum()),
            "functions_higher": int((self.other > self.baseline).sum()),
        }
        if seed is not None:
            entry["reduction_percent_ci95"] = mean_reduction_interval(self.log_factors, self.module, seed)
        return entry
