"""Comparison of two variants of the same code."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from components.core.objectives import Objective
from components.evaluation.metrics_types import Interval, ScoreComparison, SizeComparison


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

    def figures(self, seed: int) -> SizeComparison | ScoreComparison:
        """Return the entry of metrics.json. `seed`: seed of the bootstrap interval over the modules."""
        return self.size_figures(seed) if self.objective.additive else self.score_figures(seed)

    def size_figures(self, seed: int) -> SizeComparison:
        """Return the entry of metrics.json for sizes."""
        smaller, equal, larger = self._directions()
        return SizeComparison(
            modules=int(np.unique(self.module).size),
            baseline_bytes=self.baseline.sum().item(),
            policy_bytes=self.other.sum().item(),
            reduction_percent=self.reduction_percent,
            modules_smaller=smaller,
            modules_equal=equal,
            modules_larger=larger,
            reduction_percent_ci95=self._interval(seed),
        )

    def score_figures(self, seed: int) -> ScoreComparison:
        """Return the entry of metrics.json for scores."""
        lower, equal, higher = self._directions()
        return ScoreComparison(
            modules=int(np.unique(self.module).size),
            functions=int(self.baseline.size),
            reduction_percent=self.reduction_percent,
            functions_lower=lower,
            functions_equal=equal,
            functions_higher=higher,
            reduction_percent_ci95=self._interval(seed),
        )

    def _directions(self) -> tuple[int, int, int]:
        """Return the number of cases with a smaller, an equal and a larger value."""
        less, equal, more = self.other < self.baseline, self.other == self.baseline, self.other > self.baseline
        return int(less.sum()), int(equal.sum()), int(more.sum())

    def _interval(self, seed: int) -> Interval | None:
        bounds = self.objective.interval(self.baseline, self.other, self.module, seed)
        return None if bounds is None else (bounds[0], bounds[1])
