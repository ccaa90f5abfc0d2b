"""The state of a training that checkpoints, messages and reports read."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from components.ppo.learners.advantage_scale import update_scale


@dataclass
class TrainingState:
    """State of a training, without learner and sampler.

    Attributes:
        iteration: number of finished iterations.
        trained_s: wall time of training, including resumed parts.
        scale: root of the mean absolute gain or advantage; None before the first measurement.
        best_iteration, best_percent: iteration and reduction of the best validation.
        best_interval: 95% interval of that reduction in percent over modules like these; None for fewer than two.
        progress_iteration: iteration of the best validation that came before patience was at its end.
        history: iteration and reduction in percent of each validation.
        rewards: mean reward of each iteration.
    """

    iteration: int = 0
    trained_s: float = 0.0
    scale: float | None = None
    best_percent: float = -np.inf
    best_iteration: int = 0
    best_interval: list[float] | None = None
    progress_iteration: int = 0
    history: list[tuple[int, float]] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)

    @property
    def validations_since_best(self) -> int:
        """Number of validations after the best one that patience knows.

        A training that has ended without progress may still find its best policy in the final validation. It has ended
        nevertheless: the same command must deliver that policy again, not train on.
        """
        return sum(iteration > self.progress_iteration for iteration, _ in self.history)

    def is_stalled(self, patience: int) -> bool:
        """Return whether the training ends because validations do not improve; patience: see TrainingConfig."""
        return 0 < patience <= self.validations_since_best

    def add_validation(self, percent: float, best: bool, interval: list[float] | None, patience: int) -> None:
        """Add the validation of the policy after `iteration`.

        Args:
            percent: its reduction.
            best: whether it is the best one from now on.
            interval: 95% interval of the reduction of a best one.
            patience: see TrainingConfig.
        """
        if best:
            if not self.is_stalled(patience):
                self.progress_iteration = self.iteration
            self.best_percent, self.best_iteration, self.best_interval = percent, self.iteration, interval
        self.history.append((self.iteration, percent))

    def update_scale(self, gains: NDArray[np.float64]) -> float:
        """Update `scale` with the gains or advantages of an iteration, [N], and return it."""
        self.scale = update_scale(self.scale, gains)
        return self.scale
