"""Tests of the patience of a training."""

from __future__ import annotations

import pytest

from components.ppo.training_state import TrainingState


def validated(*percents: float, patience: int = 2) -> TrainingState:
    """Return the state after these validations, one after each iteration, of which the greatest so far is the best."""
    state = TrainingState()
    for percent in percents:
        state.add_validation(percent, percent > state.best_percent, None, patience)
        state.iteration += 1
    return state


@pytest.mark.parametrize(
    ("percents", "best", "stalled"),
    [
        ((0.0,), 0, False),
        ((0.0, -1.0), 0, False),
        ((0.0, -1.0, -2.0), 0, True),
        ((0.0, 1.0, 0.5), 1, False),
        ((0.0, 1.0, 0.5, 0.7), 1, True),
        ((-1.0, -2.0, 0.0, -3.0), 2, False),
    ],
)
def test_training_stalls_after_validations_without_a_new_best(
    percents: tuple[float, ...], best: int, stalled: bool
) -> None:
    state = validated(*percents)
    assert (state.best_iteration, state.is_stalled(2), state.is_stalled(0)) == (best, stalled, False)
    assert [percent for _, percent in state.history] == list(percents)


def test_training_that_has_stalled_stays_so_if_its_final_policy_is_the_best() -> None:
    """The same command must deliver it again, also after an interruption, and not train on."""
    state = validated(0.0, 1.0, 0.5, 0.7)
    state.add_validation(2.0, True, [1.0, 3.0], 2)
    assert (state.best_iteration, state.best_percent, state.best_interval) == (4, 2.0, [1.0, 3.0])
    assert state.is_stalled(2) and not state.is_stalled(4)


def test_best_policy_at_the_limit_of_a_training_gives_its_continuation_new_patience() -> None:
    state = validated(0.0, 1.0, 0.5)
    state.add_validation(2.0, True, None, 2)
    state.add_validation(1.0, False, None, 2)
    assert not state.is_stalled(2)
