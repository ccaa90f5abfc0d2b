"""Tests of how reports write figures."""

from __future__ import annotations

import pytest

from components.evaluation.report.formatting import (
    beside,
    change,
    costs_markdown,
    interval_in_words,
    projects_line,
    required_in_words,
)
from components.platform.launcher.step_cost import StepCost


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (None, ""),
        ((0.1, 2.3), ", 95% interval 0.10% to 2.30% smaller"),
        ((-2.3, -0.1), ", 95% interval 0.10% to 2.30% larger"),
        ((-1.17, 0.44), ", 95% interval 1.17% larger to 0.44% smaller"),
        ((0, 0.44), ", 95% interval same to 0.44% smaller"),
        ((0.003, 2.3), ", 95% interval 0.003% to 2.30% smaller"),  # nearly touches zero
    ],
)
def test_interval_says_in_words_which_way_its_ends_point(bounds: tuple[float, float] | None, expected: str) -> None:
    assert interval_in_words(bounds) == expected


@pytest.mark.parametrize(
    ("percent", "limit", "text"), [(1.004, 1, "1.004"), (1.0, 1, "1.00"), (3.0, 1, "3.00"), (0.4999, 0.5, "0.4999")]
)
def test_figure_beside_a_limit_has_the_digits_that_decide(percent: float, limit: float, text: str) -> None:
    assert beside(percent, limit) == text
    assert change(-percent, limit=limit) == f"{text}% larger"


@pytest.mark.parametrize(
    ("reduction", "text"),
    [
        (2.314, "2.31% smaller"),
        (-0.4, "0.40% larger"),
        (0.0, "same"),
        (None, "–"),
        (1e-15, "same"),
        (1e-7, "0.0000001% smaller"),
    ],
)
def test_change_has_no_sign(reduction: float | None, text: str) -> None:
    assert change(reduction) == text


@pytest.mark.parametrize(
    ("percent", "text"), [(0.5, "at least 0.5% smaller"), (0, "at least 0% smaller"), (-1, "at most 1% larger")]
)
def test_required_in_words(percent: float, text: str) -> None:
    assert required_in_words(percent) == text


def test_costs_are_a_table_if_they_are_known() -> None:
    assert costs_markdown({}) == ""
    text = costs_markdown({"ppo": StepCost(120.0, 8, 812.4, 10**9), "vocab": StepCost(1.0, 1, 1.0, 10**6)})
    assert "What the run cost." in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 5 and "6.8 of 8" in rows[2] and "0.23 core hours" in rows[4]


def test_projects_that_grew_come_first() -> None:
    reductions = {"a": 1.0, "b": -0.104, "c": 2.5, "d": None, "e": 0.0, "f": 0.5, "g": 0.25, "h": 0.1, "i": -3.0}
    assert projects_line(reductions) == "by project: grew i 3.00%, b 0.10%; gained c 2.50%, a 1.00%, f 0.50% and 2 more"
    assert projects_line({"a": 0.0, "b": None}) == "by project: no change"
