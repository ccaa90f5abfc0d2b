"""Two variants of the same modules, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from components.evaluation.bootstrap import reduction_interval


@dataclass(frozen=True)
class Comparison:
    """Sizes of the same modules under the heuristic (baseline) and under something else.

    Attributes:
        baseline_bytes: int64 [N], native text of each module under -Oz's own heuristic.
        other_bytes: int64 [N], native text of the same modules, in the same order, under the other variant.
    """

    baseline_bytes: np.ndarray
    other_bytes: np.ndarray

    def __post_init__(self) -> None:
        if self.baseline_bytes.shape != self.other_bytes.shape or self.baseline_bytes.ndim != 1:
            raise ValueError(
                f"two variants of the same modules: {self.baseline_bytes.shape} and {self.other_bytes.shape}"
            )

    @property
    def reduction_percent(self) -> float | None:
        """How much smaller all modules together are; positive is better, None when there is no text at all."""
        return reduction_percent(int(self.baseline_bytes.sum()), int(self.other_bytes.sum()))

    def to_json(self, seed: int | None = None) -> dict[str, Any]:
        """As it stands in metrics.json; with `seed`, also the bootstrap interval over the modules."""
        entry: dict[str, Any] = {
            "modules": int(self.baseline_bytes.size),
            "baseline_bytes": int(self.baseline_bytes.sum()),
            "policy_bytes": int(self.other_bytes.sum()),
            "reduction_percent": self.reduction_percent,
            "modules_smaller": int((self.other_bytes < self.baseline_bytes).sum()),
            "modules_equal": int((self.other_bytes == self.baseline_bytes).sum()),
            "modules_larger": int((self.other_bytes > self.baseline_bytes).sum()),
        }
        if seed is not None:
            entry["reduction_percent_ci95"] = reduction_interval(self.baseline_bytes, self.other_bytes, seed)
        return entry


def reduction_percent(baseline_bytes: int, other_bytes: int) -> float | None:
    """100 * (1 - other / baseline), which is 100 times the reward; None when the baseline has no byte."""
    return 100.0 * (1.0 - other_bytes / baseline_bytes) if baseline_bytes else None
