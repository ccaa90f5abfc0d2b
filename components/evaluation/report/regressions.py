"""Lists the cases that the policy makes worse than the heuristic does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from components.evaluation.measurements import BASELINE, POLICY, Measurements
from components.evaluation.report.formatting import GROUP_TITLES

MAX_LISTED = 10


@dataclass(frozen=True)
class WorstCase:
    """A module or function that the policy makes worse.

    Attributes:
        name: of the module or function; module: the module of a function, "" for modules.
        group: title of the kind of unseen code.
        baseline, policy: the values under the heuristic and under the policy; bytes are integers.
        growth_percent: infinite for a baseline of 0 bytes.
    """

    name: str
    module: str
    group: str
    baseline: float
    policy: float
    growth_percent: float

    def to_json(self, unit: str) -> dict[str, Any]:
        """Return the entry of model-card.json. unit: that of the objective's labels, as the suffix of keys."""
        return {
            **({"module": self.module} if self.module else {}),
            "name": self.name,
            "group": self.group,
            f"baseline_{unit}": self.baseline,
            f"policy_{unit}": self.policy,
            "growth_percent": self.growth_percent,
        }

    def line(self, unit: str) -> str:
        name = f"{self.name} in {self.module}" if self.module else self.name
        if isinstance(self.baseline, int):
            return f"{name}: {self.baseline:,} to {self.policy:,} {unit}"
        return f"{name}: {self.baseline:,.6g} to {self.policy:,.6g}"


def worst_cases(measured: Measurements, count: int = MAX_LISTED) -> list[WorstCase]:
    """Return the cases with the largest growth in percent, the worst first; at most `count`.

    An inline function is in many modules; copies with the same values are listed once. For modules, equal percentages
    are ordered by growth in bytes; names break the remaining ties, so that the list is the same in every run.
    """
    baseline, policy = measured.values[BASELINE], measured.values[POLICY]
    growth = measured.objective.growth_percent(baseline, policy)
    names = measured.names()
    cases: dict[tuple[str, float, float], WorstCase] = {}
    for index in np.flatnonzero(policy > baseline).tolist():
        module, function = names[index]
        case = WorstCase(
            name=module if measured.cases_are_modules else function,
            module="" if measured.cases_are_modules else module,
            group=GROUP_TITLES["unseen_projects" if measured.case_in_unseen_project[index] else "unseen_modules"],
            baseline=baseline[index].item(),
            policy=policy[index].item(),
            growth_percent=float(growth[index]),
        )
        cases.setdefault((case.name, case.baseline, case.policy), case)

    def rank(case: WorstCase) -> tuple[float, float, str, str]:
        growth = case.policy - case.baseline if measured.cases_are_modules else 0
        return -case.growth_percent, -growth, case.name, case.module

    return sorted(cases.values(), key=rank)[:count]
