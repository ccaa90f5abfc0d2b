"""What a training says about its end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.core.objectives import OBJECTIVES
from components.ppo.config import PpoConfig
from components.ppo.expectation import forecast
from components.ppo.training_state import TrainingState

NAMES = ("corpus", "toolchain", "trace", "warmstart", "root_dir", "output")
CONFIG = PpoConfig(**{name: Path(name) for name in NAMES}, iterations=40)  # type: ignore[arg-type]
LABELS = OBJECTIVES["size"].labels


def said(config: PpoConfig = CONFIG, **values: Any) -> str:
    history = [(0, -0.04), (5, 1.0), (15, 3.14), (20, 2.0)]
    known = {"iteration": 20, "trained_s": 330.0, "best_iteration": 15, "best_percent": 3.14, "history": history}
    return forecast(TrainingState(**{**known, **values}), config, LABELS)


def test_gain_is_said_with_its_interval_the_start_and_the_time_that_is_left() -> None:
    text = said(best_interval=[1.26, 4.9])
    assert "validation modules 3.1% (95% interval 1.3 to 4.9) smaller than the heuristic does" in text
    assert "the start 0.0% larger" in text
    # As much again for the second half of the iterations.
    assert "ends in at most 6 minutes" in text


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
    assert f"in at most {left} minutes" in said(replace(CONFIG, **limits))


def test_training_without_gain_says_when_it_gives_up() -> None:
    text = said(best_iteration=0)
    assert "no policy beats the one that training started from" in text
    assert "after 2 more validations without one, the training ends" in text
    assert "stop it now" in said(replace(CONFIG, patience=0), best_iteration=0)
