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

from dataclasses import asdict
from typing import Any

import numpy as np

from components.evaluation.comparison import Comparison
from components.evaluation.measurements import BASELINE, POLICY, WARMSTART, Measurements

UNSEEN_MODULES = "unseen_modules"
UNSEEN_PROJECTS = "unseen_projects"


def summarize(measured: Measurements, min_reduction_percent: float, seed: int) -> dict[str, Any]:
    """All figures of metrics.json that follow from the sizes.

    Args:
        measured: sizes of the held-out modules; must have the "policy" variant.
        min_reduction_percent: the verdict is "better" from this reduction on.
        seed: of the bootstrap intervals.
    """
    everything = np.ones(len(measured.modules), dtype=bool)
    metrics = {"measure": measured.measure, **_part(measured, everything, seed)}
    reduction = metrics["reduction_percent"]
    better = reduction is not None and reduction >= min_reduction_percent
    metrics["verdict"] = "better" if better else "not better"
    metrics["min_reduction_percent"] = min_reduction_percent
    metrics["groups"] = {
        UNSEEN_MODULES: _part(measured, ~measured.unseen_project, seed),
        UNSEEN_PROJECTS: _part(measured, measured.unseen_project, seed),
    }
    metrics["per_project"] = _per_project(measured, seed)
    metrics["excluded"] = [asdict(module) for module in measured.excluded]
    metrics["bootstrap_seed"] = seed
    if measured.compile_s is not None:
        metrics["compile_s"] = measured.compile_s
    return metrics


def _part(measured: Measurements, mask: np.ndarray, seed: int) -> dict[str, Any]:
    baseline = measured.sizes[BASELINE][mask]

    def against_baseline(sizes: np.ndarray) -> dict[str, Any]:
        return Comparison(baseline, sizes[mask]).to_json(seed)

    part = against_baseline(measured.sizes[POLICY])
    warmstart = measured.sizes.get(WARMSTART)
    part["warmstart"] = None if warmstart is None else against_baseline(warmstart)
    sweep = {threshold: against_baseline(sizes) for threshold, sizes in measured.thresholds.items()}
    part["sweep"] = {str(threshold): comparison for threshold, comparison in sweep.items()}
    part["best_threshold"] = (
        min(sweep, key=lambda threshold: sweep[threshold]["policy_bytes"]) if sweep and baseline.size else None
    )
    return part


def _per_project(measured: Measurements, seed: int) -> dict[str, Any]:
    projects = np.array(measured.projects)
    table = {}
    for project in sorted(set(measured.projects)):
        mask = projects == project
        comparison = Comparison(measured.sizes[BASELINE][mask], measured.sizes[POLICY][mask]).to_json(seed)
        comparison["group"] = UNSEEN_PROJECTS if measured.unseen_project[mask][0] else UNSEEN_MODULES
        table[project] = comparison
    return table
