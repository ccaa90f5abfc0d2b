"""Lists the cases that the policy makes worse than the heuristic does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from components.evaluation.measurements import BASELINE, POLICY, Measurements
from components.evaluation.report.formatting import GROUP_TITLES

MAX_LISTED = 10


def worst_cases(measured: Measurements, count: int = MAX_LISTED) -> list[dict[str, Any]]:
    """Return the cases with the largest growth in percent, the worst first; at most `count`.

    An inline function is in many modules; copies with the same values are listed once. For modules, equal percentages
    are ordered by growth in bytes; names break the remaining ties, so that the list is the same in every run.

    Returns:
        Entries of model-card.json: "name", for functions "module", "group", the values as "baseline_bytes" and
        "policy_bytes" (or the objective's unit), and "growth_percent" (infinite for a baseline of 0 bytes).
    """
    baseline, policy = measured.values[BASELINE], measured.values[POLICY]
    growth = measured.objective.growth_percent(baseline, policy)
    unit, names = measured.objective.labels.unit, measured.names()
    cases: dict[tuple[Any, ...], dict[str, Any]] = {}
    for index in np.flatnonzero(policy > baseline).tolist():
        module, function = names[index]
        values = {f"baseline_{unit}": baseline[index].item(), f"policy_{unit}": policy[index].item()}
        case = {
            **({"name": module} if measured.cases_are_modules else {"module": module, "name": function}),
            "group": GROUP_TITLES["unseen_projects" if measured.case_in_unseen_project[index] else "unseen_modules"],
            **values,
            "growth_percent": float(growth[index]),
        }
        cases.setdefault((case["name"], *values.values()), case)

    def rank(case: dict[str, Any]) -> tuple[Any, ...]:
        growth = case[f"policy_{unit}"] - case[f"baseline_{unit}"]
        return (
            -case["growth_percent"],
            -growth if measured.cases_are_modules else 0,
            case["name"],
            case.get("module", ""),
        )

    return sorted(cases.values(), key=rank)[:count]


def case_line(case: Mapping[str, Any], unit: str) -> str:
    """Return one of `worst_cases` as a line of text. unit: that of the objective's labels."""
    name = f"{case['name']} in {case['module']}" if "module" in case else case["name"]
    baseline, policy = case[f"baseline_{unit}"], case[f"policy_{unit}"]
    if isinstance(baseline, int):
        return f"{name}: {baseline:,} to {policy:,} {unit}"
    return f"{name}: {baseline:,.6g} to {policy:,.6g}"
