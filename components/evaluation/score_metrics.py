"""metrics.json of a problem that is judged by scores. Pure arithmetic, nothing is compiled here.

Layout (a *comparison* is `ScoreComparison.to_json`: modules, functions, reduction_percent, functions_lower, ...)::

    measure "score"
    modules, functions, reduction_percent, reduction_percent_ci95, ...   all held-out functions
    verdict "better" | "not better", min_reduction_percent
    warmstart: comparison, or null            the same functions under the warmstart policy
    groups: {"unseen_modules": G, "unseen_projects": G}   G: comparison with its own warmstart
    per_project: {name: comparison with "group"}
    excluded: [{module, variant, reason, detail}]
    binaries: []
    programs: what `programs.summarize_programs` gives, or null where none was measured
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from components.evaluation.measurements import POLICY, WARMSTART
from components.evaluation.metrics import UNSEEN_MODULES, UNSEEN_PROJECTS
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
    everything = np.ones(len(measured.functions), dtype=bool)
    unseen = measured.of_unseen_project
    metrics = {"measure": measured.measure, **_part(measured, everything, seed)}
    metrics["verdict"] = "better" if _better(metrics, min_reduction_percent, programs) else "not better"
    metrics["min_reduction_percent"] = min_reduction_percent
    metrics["groups"] = {
        UNSEEN_MODULES: _part(measured, ~unseen, seed),
        UNSEEN_PROJECTS: _part(measured, unseen, seed),
    }
    metrics["per_project"] = _per_project(measured, seed)
    metrics["excluded"] = [asdict(module) for module in measured.excluded]
    metrics["bootstrap_seed"] = seed
    if measured.compile_s is not None:
        metrics["compile_s"] = measured.compile_s
    metrics["binaries"] = []
    metrics["programs"] = programs
    return metrics


def _better(metrics: Mapping[str, Any], min_reduction_percent: float, programs: Mapping[str, Any] | None) -> bool:
    """A score is LLVM's guess of what code costs; where programs were run, they have the last word."""
    if metrics["reduction_percent"] is None or metrics["reduction_percent"] < min_reduction_percent:
        return False
    return programs is None or not execute_more(programs)


def _part(measured: ScoreMeasurements, mask: np.ndarray, seed: int) -> dict[str, Any]:
    part = measured.compare(POLICY, mask).to_json(seed)
    part["warmstart"] = measured.compare(WARMSTART, mask).to_json(seed) if WARMSTART in measured.scores else None
    return part


def _per_project(measured: ScoreMeasurements, seed: int) -> dict[str, Any]:
    projects = np.array(measured.projects)
    table = {}
    for project in sorted(set(measured.projects)):
        of_project = projects == project
        comparison = measured.compare(POLICY, of_project[measured.module]).to_json(seed)
        comparison["group"] = UNSEEN_PROJECTS if measured.unseen_project[of_project][0] else UNSEEN_MODULES
        table[project] = comparison
    return table
