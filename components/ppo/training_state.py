"""The state of a training that checkpoints, messages and reports read, and what it says early of the end."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from components.core.objectives.objective import Labels
from components.ppo.config import TrainingConfig

SCALE_DECAY = 0.9
MAX_ADVANTAGE = 4.0
FORECAST_S = 300.0


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
            best: whether it is the best one from now on.
            interval: 95% interval of the reduction of a best one.
        """
        if best:
            if not self.is_stalled(patience):
                self.progress_iteration = self.iteration
            self.best_percent, self.best_iteration, self.best_interval = percent, self.iteration, interval
        self.history.append((self.iteration, percent))

    def update_scale(self, gains: NDArray[np.float64]) -> float:
        """Update `scale`, a moving average, with the gains or advantages of an iteration, [N], and return it."""
        rooted = float(np.sqrt(np.mean(np.abs(gains))))
        self.scale = rooted if self.scale is None else SCALE_DECAY * self.scale + (1 - SCALE_DECAY) * rooted
        return self.scale


def forecast(state: TrainingState, config: TrainingConfig, labels: Labels) -> str:
    """Return the message: the best validation so far with its interval, what it means, and the time that is left.

    At least one policy other than the start has been validated.

    In the trainings of docs/performance.md, held-out modules of the same projects gained about as much as the
    validation modules, other projects 24 to 82% of it.
    """
    so_far = f"so far ({state.trained_s / 60:.0f} minutes, {state.iteration} iterations) "
    left = f"the training ends in about {_minutes_left(state, config):.0f} minutes"
    if state.best_iteration == 0:
        more = config.patience - state.validations_since_best
        sooner = f", or after {more} more validations without one" if config.patience else ""
        return (
            f"{so_far}no policy beats the one that training started from on the validation modules; {left}{sooner}, "
            "and then delivers the one that it started from"
        )
    better, (_, start) = labels.comparative[state.best_percent < 0], state.history[0]
    interval = ""
    if state.best_interval is not None:
        ends = (percent if state.best_percent >= 0 else -percent for percent in state.best_interval)
        interval = " (95% interval {:.1f} to {:.1f})".format(*sorted(ends))
    return (
        f"{so_far}the best policy has validation {labels.cases} {abs(state.best_percent):.1f}%{interval} {better} than "
        f"under the heuristic, the start {abs(start):.1f}% {labels.comparative[start < 0]}; {left}; expect about as "
        "much for other modules of these projects, and a quarter to three quarters of it for other projects"
    )


def _minutes_left(state: TrainingState, config: TrainingConfig) -> float:
    left = []
    if config.minutes is not None:
        left.append(config.minutes - state.trained_s / 60)
    if config.max_iterations is not None:
        left.append((config.max_iterations - state.iteration) * state.trained_s / 60 / state.iteration)
    return max(0.0, min(left))


def normalize_advantages(advantages: NDArray[np.float64], scale: float) -> NDArray[np.float32]:
    """Return the clipped signed square root in units of `scale`: a few huge functions would dominate otherwise.

    Args:
        advantages: [N], in bytes or log scores.
        scale: of their square roots.
    """
    rooted = np.sign(advantages) * np.sqrt(np.abs(advantages))
    return np.clip(rooted / max(scale, 1e-6), -MAX_ADVANTAGE, MAX_ADVANTAGE).astype(np.float32)
