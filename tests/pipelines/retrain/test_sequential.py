"""Tests of verdicts, first deployments and promotions on measurements whose truth is known: fixed seeds, few of each.

`make bench` runs them often enough to tell rates (part verdicts).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from components.core.objectives import SIZE
from components.core.objectives.estimate import CODE
from components.evaluation.measurements import BASELINE, POLICY, Measurements
from pipelines.retrain.promote import compare
from tests.bench.verdict_simulation import (
    WEEKS,
    Series,
    draw_evaluation,
    median_weeks,
    share_advised,
    share_better,
    share_promoted,
    shares_advised_for_projects,
)

COUNT = 40


def evaluations(projects: int, tau: float, percent: float) -> Iterator[Measurements]:
    generator = np.random.default_rng(7)
    while True:
        yield draw_evaluation(generator, projects, tau, percent)


@pytest.mark.parametrize(("projects", "tau"), [(5, 2.0), (12, 7.0)])
def test_policy_without_effect_on_other_projects_is_rarely_better(projects: int, tau: float) -> None:
    """With intervals over modules, 29 to 46% were."""
    assert share_better(evaluations(projects, tau, 0.0), COUNT) <= 0.08


def test_policy_that_is_truly_better_is_shown_to_be() -> None:
    assert share_better(evaluations(12, 2.0, 5.0), COUNT) >= 0.9


def test_equal_policies_are_as_good_as_each_other() -> None:
    assert share_advised(np.random.default_rng(1), 12, 1.3, COUNT) <= 0.1


def test_choice_for_few_projects_is_right_for_them() -> None:
    """Policies that are equal on average over all projects differ on three: a report says so in a tenth of the cases,
    and of the policy that is better for these."""
    said, wrong = shares_advised_for_projects(np.random.default_rng(1), 3, 1.3, 5 * COUNT)
    assert said > 0.05 and wrong <= 0.02


@pytest.mark.parametrize("deployed", [None, 5.0])
def test_equal_policy_is_not_promoted_within_a_year(deployed: float | None) -> None:
    """Neither over LLVM's heuristic, which is deployed at first, nor over a policy that is truly 5% smaller. With
    intervals over modules, useless policies were deployed in week 3, and 34% of the series promoted an equal one."""
    series = Series(100, 10, 1.3, drift=0.1)
    assert share_promoted(np.random.default_rng(3), series, deployed, deployed or 0.0, 20) <= 0.1


def test_policy_that_is_truly_better_is_promoted() -> None:
    assert median_weeks(np.random.default_rng(3), Series(100, 10, 0.5), 5.0, 10.0, 5) < WEEKS / 2


def test_rotation_leaves_the_unit_of_the_interval_as_it_is() -> None:
    """Of five projects one has a single module, which judges in half of the weeks. In the others all modules do: four
    projects have an interval by module, which is too narrow."""
    projects = ("alone", *(f"p{index % 4}" for index in range(59)))
    names = tuple(f"m{index}" for index in range(60))
    values = {BASELINE: np.full(60, 1000), POLICY: np.random.default_rng(1).integers(900, 1100, 60)}
    measured = Measurements(SIZE, names, projects, np.zeros(60, bool), values)
    compared = [compare(measured, None, week=f"2026-W{week:02}") for week in range(1, 11)]
    assert {one.gain.target for one in compared} == {CODE} and {one.modules for one in compared} == {30, 60}
