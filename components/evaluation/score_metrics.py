"""metrics.json of a problem that is judged by scores. Pure arithmetic, nothing is compiled here.

Layout (a *comparison* is `ScoreComparison.to_json`: modules, functions, reduction_percent, functions_lower, ...)::

    measure "score"
    modules, functions, reduction_percent, reduction_percent_ci95, ...   all held-out functions
    verdict "better" | "not better", min_reduction_percent
    refused_because: words, or null           why the verdict is "not better" whatever reduction_percent is
    warmstart: comparison, or null            the same functions under the warmstart policy
    groups: {"unseen_modules": G, "unseen_projects": G}   G: comparison with its own warmstart
    per_project: {name: comparison with "group"}
    excluded: [{module, variant, reason, detail}]
    binaries: []
    programs: what `programs.summarize_programs` gives, or null where none was measured
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from components.evaluation.measurements import POLICY, WARMSTART
from components.evaluation.metrics import summarize_parts
from components.evaluation.program_rows import execute_more
from components.evaluation.score_measurements import ScoreMeasurements


def summarize_scores(
    measured: ScoreMeasurements, min_reduction_percent: float, seed: int, programs: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """All figures of metrics.json that follow from scores and programs.

    Args:
        measured: scores of the held-out functions; must have the "policy" variant.
        min_reduction_percent: the verdict is "better" from this reduction on, unless programs got slower.
        seed: of the bootstrap intervals.
        programs: what the programs of whole projects execute, as `programs.summarize_programs` gives it.
    """

    def compare(mask: np.ndarray, variant: str = POLICY) -> dict[str, Any]:
        return measured.compare(variant, mask[measured.module]).to_json(seed)

    def others(mask: np.ndarray) -> dict[str, Any]:
        return {"warmstart": compare(mask, WARMSTART) if WARMSTART in measured.scores else None}

    # A score is LLVM's guess of what code costs; where programs were run, they have the last word.
    refused = programs is not None and execute_more(programs)
    metrics = summarize_parts(measured, compare, others, min_reduction_percent, seed, refused)
    return {**metrics, "refused_because": None, "binaries": [], "programs": programs}
