"""How often verdicts, choices between policies and promotions are right, on measurements whose truth is known."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from components.core.objectives.estimate import Estimate
from components.evaluation.measurements import POLICY, Measurements
from tests.bench.context import BenchContext
from tests.bench.verdict_simulation import (
    FEW_PROJECTS,
    SERIES,
    coverage_of_real_packages,
    draw_evaluation,
    draw_modules,
    median_weeks,
    share_advised,
    share_better,
    share_promoted,
    share_promoted_wrongly,
    shares_advised_for_projects,
)

SPREADS = (0.0, 2.0, 7.0)
"""Standard deviations of projects, in points."""


def measure(ctx: BenchContext) -> dict[str, float]:
    """Percent of simulations, the worst of all settings; weeks until a policy is promoted, the median."""
    count = ctx.simulations
    return _verdicts(4 * count) | _choices(4 * count) | _promotions(count)


def _verdicts(count: int) -> dict[str, float]:
    def projects(number: int, tau: float, percent: float) -> Iterator[Measurements]:
        generator = np.random.default_rng(number)
        while True:
            yield draw_evaluation(generator, number, tau, percent)

    def modules(number: int) -> Iterator[Measurements]:
        generator = np.random.default_rng(number)
        while True:
            yield draw_modules(generator, number, 0.0)

    figures = {
        "false_better_other_projects_percent": max(
            share_better(projects(number, tau, 0.0), count) for tau in SPREADS for number in (5, 8, 12)
        ),
        "false_better_other_modules_percent": max(share_better(modules(number), count) for number in (10, 30, 100)),
        "coverage_other_projects_percent": min(
            _coverage((drawn.compare(POLICY).other_projects() for drawn in projects(number, tau, 0.0)), count)
            for tau in SPREADS
            for number in (8, 12, 25)
        ),
        "coverage_other_modules_percent": min(
            _coverage((drawn.compare(POLICY).other_modules() for drawn in modules(number)), count)
            for number in (10, 30, 100)
        ),
        "coverage_real_packages_percent": min(
            coverage_of_real_packages(np.random.default_rng(number), number, count) for number in (8, 12, 25)
        ),
    }
    for percent in (1.0, 3.0, 5.0):
        for tau in (2.0, 7.0):
            figures[f"power_{percent:.0f}_spread_{tau:.0f}_percent"] = share_better(projects(12, tau, percent), count)
    return {key: 100 * share for key, share in figures.items()}


def _coverage(estimates: Iterator[Estimate | None], count: int) -> float:
    """Return the share of intervals that hold the true reduction, which is 0."""
    bounds = (
        (known and known.interval95) or (np.nan, np.nan) for known, _ in zip(estimates, range(count), strict=False)
    )
    return sum(low <= 0 <= high for low, high in bounds) / count


def _choices(count: int) -> dict[str, float]:
    advised = (
        share_advised(np.random.default_rng(number), number, tau, count)
        for number, tau in ((8, 1.3), (12, 1.3), (20, 1.3), (12, 0.0))
    )
    wrong = (
        shares_advised_for_projects(np.random.default_rng(number), number, tau, count)[1]
        for number, tau in ((3, 1.3), (4, 1.3), (3, 0.0), (4, 0.0))
    )
    return {
        "choice_of_equal_policies_percent": 100 * max(advised),
        "wrong_choice_for_few_projects_percent": 100 * max(wrong),
    }


def _promotions(count: int) -> dict[str, float]:
    def worst(deployed: float | None, new: float) -> float:
        return max(share_promoted(np.random.default_rng(1), series, deployed, new, count) for series in SERIES)

    figures = {
        "false_promotion_percent": 100 * worst(5.0, 5.0),
        "useless_first_deployment_percent": 100 * worst(None, 0.0),
        "wrong_promotion_for_few_projects_percent": 100
        * max(share_promoted_wrongly(np.random.default_rng(1), series, 5.0, 5.0, count) for series in FEW_PROJECTS),
    }
    for series in SERIES:
        if series.projects > 5 and series.tau == 1.3 and not series.drift:
            for gain in (0.5, 1.0, 2.0):
                weeks = median_weeks(np.random.default_rng(1), series, 5.0, 5.0 + gain, count)
                figures[f"weeks_{gain:g}_of_{series.modules}_in_{series.projects}"] = weeks
    return figures
