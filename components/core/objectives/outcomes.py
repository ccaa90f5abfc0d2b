"""Training rewards: outcomes of whole modules compared with the heuristic's."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from components.core.objectives.estimate import MODULES, Estimate, estimate
from components.core.objectives.objective import Objective, Outcome

Float64 = NDArray[np.float64]


def outcome_reduction(objective: Objective, pairs: Iterable[tuple[Outcome, Outcome]]) -> float:
    """Return the relative reduction of all modules' outcomes together against their baselines.

    Args:
        pairs: outcome and baseline of each module. Cases without a baseline are left out.

    Returns:
        The reduction, positive is better; 0 if no case has a baseline.
    """
    before, after, _ = _cases(pairs)
    return objective.reduction(before, after) or 0.0 if before.size else 0.0


def outcome_estimate(objective: Objective, pairs: Iterable[tuple[Outcome, Outcome]]) -> Estimate | None:
    """Return what these outcomes say of other modules of the same projects; None without a case that has a baseline.

    Arguments as for `outcome_reduction`.
    """
    before, after, module = _cases(pairs)
    return estimate(objective, MODULES, before, after, module) if before.size else None


def _cases(pairs: Iterable[tuple[Outcome, Outcome]]) -> tuple[Float64, Float64, NDArray[np.int64]]:
    """Return baseline and value of each case that has a baseline, and the number of its pair, each [cases]."""
    rows = [
        (baseline[case], value, number)
        for number, (outcome, baseline) in enumerate(pairs)
        for case, value in outcome.items()
        if case in baseline
    ]
    before, after, module = np.array(rows, np.float64).reshape(-1, 3).T
    return before, after, module.astype(np.int64)
