"""metrics.json of a problem that is judged by size: figures and a verdict. Pure arithmetic, nothing is compiled here.

Layout (a *comparison* is `Comparison.to_json`: modules, baseline_bytes, policy_bytes, reduction_percent, ...)::

    measure "size"
    modules, baseline_bytes, policy_bytes, reduction_percent, reduction_percent_ci95, ...   all held-out modules
    verdict "better" | "not better", min_reduction_percent
    warmstart: comparison, or null            the same modules under the warmstart policy
    sweep: {"0": comparison, ...}             the default heuristic with -inline-threshold=N
    best_threshold: N or null                 the smallest of the sweep, on these very modules
    groups: {"unseen_modules": G, "unseen_projects": G}   G: comparison with its own warmstart, sweep, best_threshold
    per_project: {name: comparison with "group"}
    excluded: [{module, variant, reason, detail}]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from components.evaluation.comparison import Comparison
from components.evaluation.measurements import BASELINE, POLICY, WARMSTART, Measured, Measurements

UNSEEN_MODULES = "unseen_modules"
UNSEEN_PROJECTS = "unseen_projects"


def summarize(measured: Measurements, min_reduction_percent: float, seed: int) -> dict[str, Any]:
    """All figures of metrics.json that follow from the sizes.

    Args:
        measured: sizes of the held-out modules; must have the "policy" variant.
        min_reduction_percent: the verdict is "better" from this reduction on.
        seed: of the bootstrap intervals.
    """
    baseline = measured.sizes[BASELINE]

    def compare(mask: np.ndarray, sizes: np.ndarray = measured.sizes[POLICY]) -> dict[str, Any]:
        return Comparison(baseline[mask], sizes[mask]).to_json(seed)

    def others(mask: np.ndarray) -> dict[str, Any]:
        warmstart = measured.sizes.get(WARMSTART)
        sweep = {threshold: compare(mask, sizes) for threshold, sizes in measured.thresholds.items()}
        known = sweep and mask.any()
        return {
            "warmstart": None if warmstart is None else compare(mask, warmstart),
            "sweep": {str(threshold): comparison for threshold, comparison in sweep.items()},
            "best_threshold": min(sweep, key=lambda threshold: sweep[threshold]["policy_bytes"]) if known else None,
        }

    return summarize_parts(measured, compare, others, min_reduction_percent, seed)


def summarize_parts(
    measured: Measured,
    compare: Callable[[np.ndarray], dict[str, Any]],
    others: Callable[[np.ndarray], dict[str, Any]],
    min_reduction_percent: float,
    seed: int,
    refused: bool = False,
) -> dict[str, Any]:
    """What metrics.json has of all measurements alike.

    Args:
        compare: the policy's comparison of some of the modules, bool [M]. others: those of the other variants.
        refused: the verdict is "not better" whatever the reduction is.
    """

    def part(mask: np.ndarray) -> dict[str, Any]:
        return {**compare(mask), **others(mask)}

    unseen, projects = measured.unseen_project, np.array(measured.projects)
    metrics = {"measure": measured.measure, **part(np.ones(len(measured.modules), dtype=bool))}
    reduction = metrics["reduction_percent"]
    better = reduction is not None and reduction >= min_reduction_percent and not refused
    metrics["verdict"] = "better" if better else "not better"
    metrics["min_reduction_percent"] = min_reduction_percent
    metrics["groups"] = {UNSEEN_MODULES: part(~unseen), UNSEEN_PROJECTS: part(unseen)}
    metrics["per_project"] = {
        project: {
            **compare(projects == project),
            "group": UNSEEN_PROJECTS if unseen[projects == project][0] else UNSEEN_MODULES,
        }
        for project in sorted(set(measured.projects))
    }
    metrics["excluded"] = [asdict(module) for module in measured.excluded]
    metrics["bootstrap_seed"] = seed
    if measured.compile_s is not None:
        metrics["compile_s"] = measured.compile_s
    return metrics
