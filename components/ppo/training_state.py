"""The state of a training that checkpoints, messages and reports read."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

SCALE_DECAY = 0.9


@dataclass
class TrainingState:
    """State of a training, without learner and sampler.

    Attributes:
        iteration: number of finished iterations.
        trained_s: wall time of training, including resumed parts.
        scale: root of the mean absolute gain or advantage; None before the first measurement.
        best_iteration, best_percent: iteration and reduction of the best validation.
        best_interval: 95% interval of that reduction in percent over modules like these; None for fewer than two.
        history: iteration and reduction in percent of each validation.
        rewards: mean reward of each iteration.
    """

    iteration: int = 0
    trained_s: float = 0.0
    scale: float | None = None
    best_percent: float = -np.inf
    best_iteration: int = 0
    best_interval: list[float] | None = None
    history: list[tuple[int, float]] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)

    @property
    def validations_since_best(self) -> int:
        """Number of validations after the best one."""
        return sum(iteration > self.best_iteration for iteration, _ in self.history)

    def update_scale(self, gains: NDArray[np.float64]) -> float:
        """Update `scale` with the gains or advantages of an iteration, [N], and return it."""
        self.scale = update_scale(self.scale, gains)
        return self.scale


def update_scale(scale: float | None, gains: NDArray[np.float64]) -> float:
    """Return the moving average of the root of the mean absolute gain or advantage.

    Args:
        scale: the average so far; None before the first measurement.
        gains: [N], of one iteration.
    """
    rooted = np.sqrt(np.mean(np.abs(gains)))
    return float(rooted if scale is None else SCALE_DECAY * scale + (1 - SCALE_DECAY) * rooted)
