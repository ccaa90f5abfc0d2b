"""What a training says about its end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.core.objectives import OBJECTIVES
from components.ppo.config import TrainingConfig
from components.ppo.training_state import TrainingState, forecast

NAMES = ("corpus", "toolchain", "trace", "warmstart", "root_dir", "output")
CONFIG = TrainingConfig(**{name: Path(name) for name in NAMES}, iterations=40)  # type: ignore[arg-type]
LABELS = OBJECTIVES["size"].labels


def said(config: TrainingConfig = CONFIG, **values: Any) -> str:
    history = [(0, -0.04), (5, 1.0), (15, 3.14), (20, 2.0)]
    known = {"iteration": 20, "trained_s": 330.0, "best_iteration": 15, "best_percent": 3.14, "history": history}
    return forecast(TrainingState(**{**known, **values}), config, LABELS)


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
