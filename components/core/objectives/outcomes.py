"""Training rewards: outcomes of whole modules compared with the heuristic's."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from components.core.objectives.objective import Objective, Outcome


def outcome_reduction(objective: Objective, pairs: Iterable[tuple[Outcome, Outcome]]) -> float:
    """Return the relative reduction of all modules' outcomes together against their baselines.

    Args:
        objective: objective of the outcomes.
        pairs: outcome and baseline of each module. Cases without a baseline are left out.

    Returns:
        The reduction, positive is better; 0 if no case has a baseline.
    """
    both = [
        (baseline[case], value) for outcome, baseline in pairs for case, value in outcome.items() if case in baseline
    ]
    if not both:
        return 0.0
    before, after = np.array(both).T
    return objective.reduction(before, after) or 0.0
