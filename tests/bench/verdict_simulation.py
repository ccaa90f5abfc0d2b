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
from pipelines.retrain.promote import decide
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


def draw_policies_of_projects(generator: np.random.Generator, projects: int, tau: float) -> tuple[Measurements, float]:
    """Return measurements of two policies that are equally good on average over all projects, none of them unseen, and
    what the first one truly gains on these projects, in percent."""
    project = np.sort(np.r_[np.arange(projects), generator.integers(0, projects, 20 * projects)])
    sizes = np.exp(1.5 * generator.standard_normal(project.size)) * 4000 + 200
    gains = tau * generator.standard_normal(projects)[project]
    common = 8 + 7 * generator.standard_normal(projects)[project]
    values = {POLICY: common + gains + 3 * generator.standard_normal(project.size), REFERENCE: common}
    names = [f"project{number}" for number in project.tolist()]
    # Sizes of modules say nothing of their project's effect: each project weighs as its number of modules.
    return _measurements(sizes, names, values, unseen=False), float(gains.mean())


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
    return sum(any(_directions(draw_equal_policies(generator, projects, tau))) for _ in range(count)) / count


def shares_advised_for_projects(
    generator: np.random.Generator, projects: int, tau: float, count: int
) -> tuple[float, float]:
    """Return how often a report says which of two policies to take for a team's projects, and how often it says so of
    the one that is not the better one for them."""
    said = wrong = 0
    for _ in range(count):
        measured, gain = draw_policies_of_projects(generator, projects, tau)
        direction = next((d for d in _directions(measured) if d), 0)
        said += direction != 0
        wrong += direction * gain < 0 or (direction != 0 and gain == 0)
    return said / count, wrong / count


def _directions(measured: Measurements) -> list[int]:
    """Return which of two policies is shown to be better, for other modules and for other projects."""
    against = measured.compare(POLICY, baseline=REFERENCE).figures(of_policies=True)
    estimates = (against.other_modules, against.other_projects)
    return [0 if known is None else known.direction(CHOICE_LEVEL) for known in estimates]


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

    def first_promotion(
        self, generator: np.random.Generator, deployed_percent: float | None, new_percent: float
    ) -> tuple[int, float]:
        """Return the week of the first promotion, WEEKS + 1 without one, and what it truly gains on these projects.

        Args:
            deployed_percent: true reduction of the deployed policy; None if nothing is deployed.
            new_percent: true reduction of each week's new policy.

        The gain is over the deployed policy, in percent: of any code of these projects, not of the measured modules.
        """
        project = np.sort(np.r_[np.arange(self.projects), self._integers(generator)])
        names = tuple(f"p{number}/m{index}.o" for index, number in enumerate(project.tolist()))
        sizes = self._sizes(generator, self.modules)
        old_effect = np.zeros(project.size)
        if deployed_percent is not None:
            old_effect = deployed_percent + self._of_projects(generator, project)
        old = old_effect + 3 * generator.standard_normal(project.size)
        state = State(None if deployed_percent is None else _DEPLOYED)
        for week in range(1, WEEKS + 1):
            changed = generator.random(self.modules) < self.drift
            sizes[changed] = self._sizes(generator, int(changed.sum()))
            old[changed] = old_effect[changed] + 3 * generator.standard_normal(int(changed.sum()))
            new_effect = new_percent + self._of_projects(generator, project)
            measured = self._measured(names, project, sizes, new_effect + 3 * generator.standard_normal(project.size))
            before = None if deployed_percent is None else self._measured(names, project, sizes, old)
            decision = self._decide(state, week, measured, before)
            if decision.kind == "promoted":
                return week, float((new_effect - old_effect).mean())
            state = state.decided(decision)
        return WEEKS + 1, 0.0

    def _decide(self, state: State, week: int, measured: Measurements, before: Measurements | None) -> Decision:
        metrics = judged(measured)
        refused = "" if metrics.verdict == "better" else f"the verdict is {metrics.verdict}"
        policy = f"gs://{week}"
        found = Decision("promoted", week * WEEK_S, "", "", policy, f"{week:064}")
        return decide(state, found, refused, metrics, lambda: (measured, before))

    def _integers(self, generator: np.random.Generator) -> NDArray[np.int64]:
        return generator.integers(0, self.projects, self.modules - self.projects)

    def _sizes(self, generator: np.random.Generator, count: int) -> Floats:
        return np.round(np.exp(1.5 * generator.standard_normal(count)) * 4000 + 200)

    def _of_projects(self, generator: np.random.Generator, project: NDArray[np.int64]) -> Floats:
        return self.tau * generator.standard_normal(self.projects)[project]

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
FEW_PROJECTS = (Series(100, 3, 1.3), Series(100, 4, 1.3), Series(400, 3, 1.3))
"""Teams that are judged by module. Policies differ on their projects even if they are equal on average over all."""

_DEPLOYED = Deployed("gs://deployed", "d" * 64, "inlining", "19.1.7", (), {}, 5.0, None, 0.0)


def share_promoted(
    generator: np.random.Generator, series: Series, deployed: float | None, new: float, count: int
) -> float:
    """Return the share of series in which a new policy is promoted within WEEKS."""
    return sum(series.first_promotion(generator, deployed, new)[0] <= WEEKS for _ in range(count)) / count


def share_promoted_wrongly(
    generator: np.random.Generator, series: Series, deployed: float | None, new: float, count: int
) -> float:
    """Return the share of series in which a policy is promoted that is no better on the team's own projects."""
    first = (series.first_promotion(generator, deployed, new) for _ in range(count))
    return sum(week <= WEEKS and gain <= 0 for week, gain in first) / count


def median_weeks(
    generator: np.random.Generator, series: Series, deployed: float | None, new: float, count: int
) -> float:
    """Return the median number of weeks until a policy that is truly better is promoted, WEEKS + 1 for later."""
    return float(np.median([series.first_promotion(generator, deployed, new)[0] for _ in range(count)]))
