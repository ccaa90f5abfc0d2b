"""Tests of the patience of a training."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.objectives import OBJECTIVES
from components.ppo.config import TrainingConfig
from components.ppo.training_state import TrainingState, forecast, normalize_advantages


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


NAMES = ("corpus", "toolchain", "trace", "warmstart", "root_dir", "output")
CONFIG = TrainingConfig(**{name: Path(name) for name in NAMES}, iterations=40)  # type: ignore[arg-type]
LABELS = OBJECTIVES["size"].labels


def said(config: TrainingConfig = CONFIG, **values: Any) -> str:
    history = [(0, -0.04), (5, 1.0), (15, 3.14), (20, 2.0)]
    defaults = {"iteration": 20, "trained_s": 330.0, "best_iteration": 15, "best_percent": 3.14, "history": history}
    return forecast(TrainingState(**{**defaults, **values}), config, LABELS)


def test_gain_is_said_with_its_interval_the_start_and_the_time_that_is_left() -> None:
    text = said(best_interval=[1.26, 4.9])
    assert "has validation modules 3.1% (95% interval 1.3 to 4.9) smaller than under the heuristic" in text
    assert "the start 0.0% larger" in text
    # As much again for the second half of the iterations.
    assert "ends in about 6 minutes" in text


def test_interval_has_the_sign_of_the_figure() -> None:
    text = said(best_interval=[-4.0, 1.0], best_percent=-1.5, history=[(0, -2.0), (15, -1.5)])
    assert "1.5% (95% interval -1.0 to 4.0) larger than under the heuristic, the start 2.0% larger" in text


def test_scores_are_said_in_their_words() -> None:
    text = forecast(
        TrainingState(20, 330.0, None, 1.25, 15, history=[(0, 0.1), (15, 1.25)]), CONFIG, OBJECTIVES["score"].labels
    )
    assert "has validation functions 1.2% lower scores than under the heuristic, the start 0.1% lower scores" in text


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"minutes": 60.0, "iterations": None}, 54),
        ({"minutes": 7.0}, 2),
        ({"minutes": 5.5}, 0),
        ({"iterations": 21}, 0),
    ],
)
def test_the_nearest_limit_counts(limits: dict[str, Any], left: int) -> None:
    assert f"in about {left} minutes" in said(replace(CONFIG, **limits))


def test_training_without_gain_says_when_it_gives_up() -> None:
    text = said(best_iteration=0)
    assert "no policy beats the one that training started from" in text
    assert "in about 6 minutes, or after 2 more validations without one, and then delivers the one that it" in text
    assert "in about 6 minutes, and then delivers" in said(replace(CONFIG, patience=0), best_iteration=0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0.1, 1e3))
def test_normalize_advantages_keeps_sign_and_order_and_is_bounded(values, scale):
    normalized = normalize_advantages(np.array(values), scale)
    assert normalized.dtype == np.float32
    assert np.all(np.abs(normalized) <= 4)
    order = np.argsort(values, kind="stable")
    assert np.all(np.diff(normalized[order]) >= 0)
    assert np.all(normalized * np.array(values) >= 0)
