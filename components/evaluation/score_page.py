"""What report.html says of scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from components.evaluation import program_rows, table
from components.evaluation.measurements import BASELINE, POLICY
from components.evaluation.plots import GROUP_TITLES, MOST_POINTS, case_changes, project_changes
from components.evaluation.score_measurements import ScoreMeasurements
from components.evaluation.words import policy_title
from components.problems.scores import FLOOR

TEMPLATE = "score.html.jinja"
WORST = 10


def score_page(metrics: dict[str, Any], measured: ScoreMeasurements) -> tuple[str, dict[str, Any]]:
    """See `Judge.page`."""
    changes = 100.0 * np.expm1(measured.compare(POLICY).log_factors)
    functions_plot = case_changes(
        measured.scores[BASELINE] + FLOOR, changes, measured.of_unseen_project,
        "score", "better", "functions", f"score under LLVM's heuristic + {FLOOR:g}",
    )  # fmt: skip
    return TEMPLATE, {
        "rows": table.body(metrics),
        "policy_title": policy_title(metrics),
        "worst": worst_functions(measured),
        "functions_plot": Markup(functions_plot),
        "projects_plot": Markup(project_changes(metrics, "score", "better")),
        "most_points": MOST_POINTS,
        "floor": FLOOR,
        **program_rows.page_values(metrics["programs"]),
    }


@dataclass(frozen=True)
class Risen:
    """A function whose score the policy raised. `growth_percent` is of the score under the heuristic, FLOOR added."""

    module: str
    name: str
    group: str
    baseline_score: float
    policy_score: float
    growth_percent: float


def worst_functions(measured: ScoreMeasurements, count: int = WORST) -> list[Risen]:
    """The functions whose score rose by the largest factor, worst first; fewer than `count` where fewer rose.

    An inline function is in many modules; of those where it has the same scores, only the first is named, for nine
    copies of one say no more than one. Ties go to the name, so that the list is the same in every run.
    """
    baseline, policy = measured.scores[BASELINE], measured.scores[POLICY]
    growth = 100.0 * np.expm1(measured.compare(POLICY).log_factors)
    risen: dict[tuple[str, float, float], Risen] = {}
    for index in np.flatnonzero(policy > baseline).tolist():
        place, name = int(measured.module[index]), measured.functions[index]
        group = GROUP_TITLES["unseen_projects" if measured.unseen_project[place] else "unseen_modules"]
        scores = float(baseline[index]), float(policy[index])
        risen.setdefault((name, *scores), Risen(measured.modules[place], name, group, *scores, float(growth[index])))
    worst = sorted(risen.values(), key=lambda found: (-found.growth_percent, found.name, found.module))
    return worst[:count]
