"""The cases that the policy makes worse than the heuristic does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from components.evaluation.measurements import BASELINE, POLICY, Measurements
from components.evaluation.report.plots import GROUP_TITLES

WORST = 10


def worst_cases(measured: Measurements, count: int = WORST) -> list[dict[str, Any]]:
    """Return the cases that grew most in percent of their own value, the worst first; at most `count`.

    An inline function is in many modules; of copies with the same values only the first is listed. Ties go to the
    larger growth in value, then to the name, so that the list is the same in every run.

    Returns:
        As model-card.json has them: "name", for functions "module", "group", the values as "baseline_bytes" and
        "policy_bytes" (or the objective's unit), and "growth_percent" (infinite for a baseline of 0 bytes).
    """
    baseline, policy = measured.values[BASELINE], measured.values[POLICY]
    growth = measured.objective.growth_percent(baseline, policy)
    unit, names = measured.objective.labels.unit, measured.names()
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for index in np.flatnonzero(policy > baseline).tolist():
        module, function = names[index]
        values = {f"baseline_{unit}": baseline[index].item(), f"policy_{unit}": policy[index].item()}
        case = {
            **({"name": module} if measured.of_modules else {"module": module, "name": function}),
            "group": GROUP_TITLES["unseen_projects" if measured.of_unseen_project[index] else "unseen_modules"],
            **values,
            "growth_percent": float(growth[index]),
        }
        found.setdefault((case["name"], *values.values()), case)

    def rank(case: dict[str, Any]) -> tuple[Any, ...]:
        growth = case[f"policy_{unit}"] - case[f"baseline_{unit}"]
        return -case["growth_percent"], -growth if measured.of_modules else 0, case["name"], case.get("module", "")

    return sorted(found.values(), key=rank)[:count]


def case_line(case: Mapping[str, Any]) -> str:
    """Return one of `worst_cases` as a line of text."""
    if "baseline_bytes" in case:
        return f"{case['name']}: {case['baseline_bytes']:,} to {case['policy_bytes']:,} bytes"
    return f"{case['name']} in {case['module']}: {case['baseline_score']:,.6g} to {case['policy_score']:,.6g}"
