"""Says early in a training what its end may bring, so that nobody waits for nothing."""

from __future__ import annotations

from components.core.objectives.objective import Labels
from components.ppo.config import TrainingConfig
from components.ppo.training_state import TrainingState

FORECAST_S = 300.0


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
    better = labels.comparative[state.best_percent < 0]
    interval = ""
    if state.best_interval is not None:
        ends = (percent if state.best_percent >= 0 else -percent for percent in state.best_interval)
        interval = " (95% interval {:.1f} to {:.1f})".format(*sorted(ends))
    return (
        f"{so_far}the best policy has validation {labels.cases} {abs(state.best_percent):.1f}%{interval} {better} than "
        f"under the heuristic, the start {_described_start(state, labels)}; {left}; expect about as much for other "
        "modules of these projects, and a quarter to three quarters of it for other projects"
    )


def _described_start(state: TrainingState, labels: Labels) -> str:
    _, percent = state.history[0]
    return f"{abs(percent):.1f}% {labels.comparative[percent < 0]}"


def _minutes_left(state: TrainingState, config: TrainingConfig) -> float:
    left = []
    if config.minutes is not None:
        left.append(config.minutes - state.trained_s / 60)
    if config.max_iterations is not None:
        left.append((config.max_iterations - state.iteration) * state.trained_s / 60 / state.iteration)
    return max(0.0, min(left))
