"""Verdicts and promotions on made-up measurements whose truth is known, by the product's own functions.

Sizes are those of the 65 Debian packages that the pretrained policy never saw (by_package.csv), divided among lognormal
modules (σ = 1.5, as the bitcode of 795 modules has). A policy changes each project by an effect of its own with
standard deviation `tau`, in points, and each module by another one around it: 3 points, or 6 if projects differ by 7.
With 7 and 6, intervals over modules are as wide as those of the pretrained policy's card; by `tau` = 1.3 two pretrained
policies differ.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.core.objectives import SIZE
from components.core.objectives.estimate import PROJECTS, estimate
from components.core.policy import pretrained
from components.evaluation.measurements import BASELINE, POLICY, REFERENCE, Measurements
from components.evaluation.metrics import summarize
from components.evaluation.metrics_types import Metrics
from components.evaluation.report.policy_choice import CHOICE_LEVEL
from pipelines.retrain.promote import compare
from pipelines.retrain.sequential import week_of
from pipelines.retrain.state import Decision, Deployed, State

REQUIRED_PERCENT = 0.5
WEEKS = 50
WEEK_S = 7 * 86400.0
_PACKAGES = Path(pretrained.__file__).parent / "inlining" / "by_package.csv"
_MODULES_OF_A_PROJECT = 80
"""As mlgo's cards: at most so many of each package."""

Floats = NDArray[np.float64]


@cache
def packages() -> tuple[tuple[int, int, int], ...]:
    """Return modules, bytes by the heuristic and bytes by the pretrained policy of each package that it never saw."""
    with _PACKAGES.open(encoding="utf-8", newline="") as file:
        return tuple(
            (int(row["heldout_modules"]), int(row["heuristic_bytes"]), int(row["policy_bytes"]))
            for row in csv.DictReader(file)
            if row["trained_on"] == "no"
        )


def draw_evaluation(
    generator: np.random.Generator, projects: int, tau: float, percent: float, unseen: bool = True
) -> Measurements:
    """Return measurements of drawn packages under a policy whose true reduction is `percent`.

    Args:
        unseen: whether the projects are held out as a whole.
    """
    sizes, effects, names = [], [], []
    for number, index in enumerate(generator.integers(0, len(packages()), projects).tolist()):
        count, text, _ = packages()[index]
        count = max(2, min(count, _MODULES_OF_A_PROJECT))
        parts = np.exp(1.5 * generator.standard_normal(count))
        sizes.append(np.maximum(200, parts / parts.sum() * text))
        effects.append(tau * generator.standard_normal() + _module_effect(tau) * generator.standard_normal(count))
        names += [f"project{number}"] * count
    return _measurements(np.concatenate(sizes), names, {POLICY: percent + np.concatenate(effects)}, unseen)


def draw_modules(generator: np.random.Generator, modules: int, percent: float) -> Measurements:
    """Return measurements of modules of one project that training saw other modules of."""
    sizes = np.exp(1.5 * generator.standard_normal(modules)) * 4000 + 200
    effects = percent + _module_effect(0.0) * generator.standard_normal(modules)
    return _measurements(sizes, ["project"] * modules, {POLICY: effects}, unseen=False)


def draw_equal_policies(generator: np.random.Generator, projects: int, tau: float) -> Measurements:
    """Return measurements of two policies that are equally good on average, 8%, on known and unseen projects."""
    both = draw_evaluation(generator, projects, tau, 0.0)
    changes = 100 * (1 - both.values[POLICY] / both.values[BASELINE])
    _, project = np.unique(np.array(both.projects), return_inverse=True)
    common = 8 + 7 * generator.standard_normal(projects)[project]
    values = {POLICY: common + changes, REFERENCE: common}
    drawn = _measurements(both.values[BASELINE], list(both.projects), values, unseen=True)
    drawn.unseen_project[:] = project % 2 == 0
    return drawn


def _module_effect(tau: float) -> float:
    return 6.0 if tau >= 5 else 3.0


def _measurements(sizes: Floats, projects: list[str], percent: dict[str, Floats], unseen: bool) -> Measurements:
    count = sizes.size
    values = {name: np.round(sizes * (1 - change / 100)).astype(np.int64) for name, change in percent.items()}
    return Measurements(
        SIZE,
        tuple(f"{project}/m{index}.o" for index, project in enumerate(projects)),
        tuple(projects),
        np.full(count, unseen),
        {BASELINE: np.round(sizes).astype(np.int64), **values},
        languages=("c++",) * count,
    )


def judged(measured: Measurements) -> Metrics:
    """Return the metrics with the verdict."""
    return summarize(measured, REQUIRED_PERCENT)


def share_better(evaluations: Iterator[Measurements], count: int) -> float:
    """Return the share of verdicts that are "better"."""
    return sum(judged(next(evaluations)).verdict == "better" for _ in range(count)) / count


def coverage_of_real_packages(generator: np.random.Generator, projects: int, count: int) -> float:
    """Return the share of 95% intervals of drawn real packages that hold the reduction of all of them together."""
    before, after = (np.array(column, float) for column in list(zip(*packages(), strict=True))[1:])
    truth, covered = 100 * (1 - after.sum() / before.sum()), 0
    for _ in range(count):
        drawn = generator.integers(0, before.size, projects)
        known = estimate(SIZE, PROJECTS, before[drawn], after[drawn], np.arange(projects))
        low, high = (known and known.interval95) or (np.nan, np.nan)
        covered += low <= truth <= high
    return covered / count


def share_advised(generator: np.random.Generator, projects: int, tau: float, count: int) -> float:
    """Return how often a report says to take one of two equal policies."""
    advised = 0
    for _ in range(count):
        against = (
            draw_equal_policies(generator, projects, tau).compare(POLICY, baseline=REFERENCE).figures(of_policies=True)
        )
        estimates = (against.other_modules, against.other_projects)
        advised += any(known is not None and known.direction(CHOICE_LEVEL) for known in estimates)
    return advised / count


@dataclass(frozen=True)
class Series:
    """Weekly retrainings of one team.

    Attributes:
        modules, projects: number of held-out modules, and of their projects.
        tau: as above.
        drift: share of modules that are replaced by others each week.
    """

    modules: int
    projects: int
    tau: float
    drift: float = 0.0

    def weeks_until_promoted(
        self, generator: np.random.Generator, deployed_percent: float | None, new_percent: float
    ) -> int:
        """Return the week of the first promotion, WEEKS + 1 without one.

        Args:
            deployed_percent: true reduction of the deployed policy; None if nothing is deployed.
            new_percent: true reduction of each week's new policy.
        """
        project = np.sort(np.r_[np.arange(self.projects), self._integers(generator)])
        names = tuple(f"p{number}/m{index}.o" for index, number in enumerate(project.tolist()))
        sizes = self._sizes(generator, self.modules)
        old = None if deployed_percent is None else self._effects(generator, project, deployed_percent)
        state = State(None if old is None else _DEPLOYED)
        for week in range(1, WEEKS + 1):
            changed = generator.random(self.modules) < self.drift
            sizes[changed] = self._sizes(generator, int(changed.sum()))
            if old is not None:
                old[changed] = self._effects(generator, project, deployed_percent or 0.0)[changed]
            new = self._effects(generator, project, new_percent)
            measured, before = (
                None if percent is None else self._measured(names, project, sizes, percent) for percent in (new, old)
            )
            assert measured is not None
            number = state.comparisons.get(state.deployed_digest, 0) + 1
            compared = compare(measured, before, number, week_of(week * WEEK_S), seed=0)
            if compared.clearly_better and judged(measured).verdict == "better":
                return week
            state = state.decided(_not_promoted(week, state.deployed_digest, compared.gain.reduction_percent))
        return WEEKS + 1

    def _integers(self, generator: np.random.Generator) -> NDArray[np.int64]:
        return generator.integers(0, self.projects, self.modules - self.projects)

    def _sizes(self, generator: np.random.Generator, count: int) -> Floats:
        return np.round(np.exp(1.5 * generator.standard_normal(count)) * 4000 + 200)

    def _effects(self, generator: np.random.Generator, project: NDArray[np.int64], percent: float) -> Floats:
        of_projects = self.tau * generator.standard_normal(self.projects)[project]
        return percent + of_projects + 3 * generator.standard_normal(project.size)

    def _measured(
        self, names: tuple[str, ...], project: NDArray[np.int64], sizes: Floats, percent: Floats
    ) -> Measurements:
        values = {BASELINE: sizes.astype(np.int64), POLICY: np.round(sizes * (1 - percent / 100)).astype(np.int64)}
        projects = tuple(f"p{number}" for number in project.tolist())
        return Measurements(SIZE, names, projects, np.zeros(project.size, bool), values)


SERIES = (
    *(Series(100, projects, 1.3) for projects in (5, 10, 20)),
    *(Series(400, projects, 1.3) for projects in (5, 10, 20)),
    Series(100, 10, 0.0),
    Series(400, 10, 0.5),
    Series(100, 10, 1.3, drift=0.1),
    Series(30, 5, 1.3),
)
"""Ten teams."""

_DEPLOYED = Deployed("gs://deployed", "d" * 64, "inlining", "19.1.7", (), {}, 5.0, None, 0.0)


def _not_promoted(week: int, against: str, percent: float) -> Decision:
    policy = f"gs://{week}"
    return Decision("not promoted", week * WEEK_S, "", "", policy, f"{week:064}", against=against, percent=percent)


def share_promoted(
    generator: np.random.Generator, series: Series, deployed: float | None, new: float, count: int
) -> float:
    """Return the share of series in which a new policy is promoted within WEEKS."""
    weeks = [series.weeks_until_promoted(generator, deployed, new) for _ in range(count)]
    return sum(week <= WEEKS for week in weeks) / count


def median_weeks(
    generator: np.random.Generator, series: Series, deployed: float | None, new: float, count: int
) -> float:
    """Return the median number of weeks until a policy that is truly better is promoted, WEEKS + 1 for later."""
    return float(np.median([series.weeks_until_promoted(generator, deployed, new) for _ in range(count)]))
