"""Computes the figures and the verdict of metrics.json. Compiles nothing.

Layout (a *comparison* is `Comparison.to_json`: modules, reduction_percent, reduction_percent_ci95, ...)::

    measure "size" | "score"                  name of the objective
    modules, reduction_percent, ...           comparison of all held-out cases: modules, or functions
    verdict "better" | "not better", min_reduction_percent
    refused_because: text, or null            why the verdict is "not better" regardless of reduction_percent
    warmstart: comparison, or null            the same cases under the warmstart policy
    groups: {"unseen_modules": G, "unseen_projects": G}   G: comparison with its own warmstart and, for sizes, sweep,
                                              best_threshold, languages, sections
    per_project: {name: comparison with "group"}
    excluded: [{module, variant, reason, detail}]
    binaries: [linked_binaries.Binary.to_json()]     of whole projects, by link variant
    programs: result of `summarize_programs`, or null if none was run

For sizes also::

    sweep: {"0": comparison, ...}             the default heuristic with -inline-threshold=N
    best_threshold: N or null                 the smallest text of the sweep, on these same modules
    languages: {"c": comparison, "c++": comparison, ...}   modules of each language that occurs
    sections: {".text": {baseline_bytes, policy_bytes, reduction_percent}, ...}   empty if unknown
    judged_by "modules" | "linked"            whose reduction decides the verdict
    linked: {link variant: {"all" | "c" | "c++": {files, stock, policy, reduction_percent, text_reduction_percent}}}
    max_slowdown_percent: maximum increase of the executed instructions in sum, or null
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from components.core.compiler.source_language import LANGUAGES
from components.evaluation.benchmarks.program_rows import execute_more, headline_total
from components.evaluation.comparison import reduction_percent
from components.evaluation.measurements import BASELINE, POLICY, SECTIONS, WARMSTART, Measurements, threshold_name
from components.evaluation.report.formatting import change

UNSEEN_MODULES = "unseen_modules"
UNSEEN_PROJECTS = "unseen_projects"
MAX_C_GROWTH_PERCENT = 0.1
"""Maximum growth of the C modules of unseen projects in sum. C has less to inline than C++, so a loss on C is easily
hidden by a gain on C++."""

NO_GAIN_OVER_START = "it is not better than the policy that training started from"


def summarize(
    measured: Measurements, min_reduction_percent: float, seed: int, whole_projects: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the verdict and all figures of metrics.json that are computed from measurements.

    Args:
        measured: values of the held-out modules; must have the "policy" variant.
        min_reduction_percent: minimum reduction for the verdict "better".
        seed: seed of the bootstrap intervals.
        whole_projects: result of `compare_whole_projects`, if whole projects were built.
    """

    def compare(modules: np.ndarray, variant: str = POLICY) -> dict[str, Any]:
        return measured.compare(variant, modules).to_json(seed)

    def group(modules: np.ndarray) -> dict[str, Any]:
        warmstart = compare(modules, WARMSTART) if WARMSTART in measured.values else None
        return {**compare(modules), "warmstart": warmstart, **_breakdown(measured, modules, seed)}

    unseen, projects = measured.unseen_project, np.array(measured.projects)
    metrics: dict[str, Any] = {"measure": measured.objective.name, **group(np.ones(len(measured.modules), dtype=bool))}
    whole = {"binaries": [], "programs": None} | dict(whole_projects or {})
    refusal = _refusal_reason(measured, compare)
    slower = measured.objective.programs_decide and whole["programs"] is not None and execute_more(whole["programs"])
    reduction = metrics["reduction_percent"]
    better = reduction is not None and reduction >= min_reduction_percent and refusal is None and not slower
    return {
        **metrics,
        "verdict": "better" if better else "not better",
        "min_reduction_percent": min_reduction_percent,
        "groups": {UNSEEN_MODULES: group(~unseen), UNSEEN_PROJECTS: group(unseen)},
        "per_project": {
            project: {
                **compare(projects == project),
                "group": UNSEEN_PROJECTS if unseen[projects == project][0] else UNSEEN_MODULES,
            }
            for project in sorted(set(measured.projects))
        },
        "excluded": [asdict(module) for module in measured.excluded],
        "bootstrap_seed": seed,
        **({"compile_s": measured.compile_s} if measured.compile_s is not None else {}),
        "refused_because": refusal,
        **whole,
    }


def judge_whole_projects(metrics: dict[str, Any], max_slowdown_percent: float | None) -> None:
    """Base the verdict on the linked binaries of whole projects, if known, and on the instructions of their programs.

    Args:
        metrics: result of `summarize`, with "linked"; modified. The link variant "default" counts or, without it, the
            first one.
        max_slowdown_percent: maximum increase of the executed instructions in sum; None for no limit.
    """
    metrics |= {"judged_by": "modules", "max_slowdown_percent": max_slowdown_percent}
    programs = metrics["programs"]
    if total := headline_total(metrics["linked"]):
        metrics["judged_by"] = "linked"
        required, reduction = metrics["min_reduction_percent"], total["reduction_percent"]
        enough = reduction is not None and reduction >= required
        if not enough and metrics["verdict"] == "better":
            metrics["refused_because"] = f"linked programs and libraries are {change(reduction)}"
        metrics["verdict"] = "better" if enough and metrics["refused_because"] is None else "not better"
    if programs is None or max_slowdown_percent is None:
        return
    slowdown = -programs["reduction_percent"]
    if slowdown > max_slowdown_percent:
        metrics["verdict"] = "not better"
        metrics["refused_because"] = metrics["refused_because"] or (
            f"programs execute {slowdown:.2f}% more instructions; the limit is {max_slowdown_percent:g}%"
        )


def refuse_without_gain_over_start(metrics: dict[str, Any], start_trained_by: str) -> None:
    """Make the verdict "not better" if training started from a trained policy and is not better than that policy.

    A policy that only imitates the heuristic ("warmstart") does not count, because it is not a usable alternative.

    Args:
        metrics: result of `summarize`; modified.
        start_trained_by: the step that made the initial policy, "" if unknown.
    """
    start, reduction = metrics["warmstart"], metrics["reduction_percent"]
    if start_trained_by in ("", WARMSTART) or start is None or None in (reduction, start["reduction_percent"]):
        return
    if reduction <= start["reduction_percent"]:
        metrics["verdict"] = "not better"
        metrics["refused_because"] = metrics["refused_because"] or NO_GAIN_OVER_START


def _breakdown(measured: Measurements, modules: np.ndarray, seed: int) -> dict[str, Any]:
    """Return sweep, languages and sections of the modules of a mask, bool [M]; {} if the objective has no sweep."""
    if not measured.objective.sweeps_thresholds:
        return {}
    languages = np.array(measured.languages)
    sweep = {
        threshold: measured.compare(threshold_name(threshold), modules).to_json(seed)
        for threshold in measured.thresholds
    }
    has_best = sweep and modules.any()
    return {
        "sweep": {str(threshold): comparison for threshold, comparison in sweep.items()},
        "best_threshold": min(sweep, key=lambda threshold: sweep[threshold]["policy_bytes"]) if has_best else None,
        "languages": {
            language: measured.compare(POLICY, modules & (languages == language)).to_json(seed)
            for language in LANGUAGES
            if language in measured.languages
        },
        "sections": _sections(measured, modules),
    }


def _sections(measured: Measurements, modules: np.ndarray) -> dict[str, dict[str, Any]]:
    """Compare the bytes in each kind of section, for the modules of a mask, bool [M]."""
    if not {BASELINE, POLICY} <= measured.sections.keys():
        return {}
    sums = {
        section: [int(measured.sections[variant][section][modules].sum()) for variant in (BASELINE, POLICY)]
        for section in SECTIONS
    }
    return {
        section: {
            "baseline_bytes": before,
            "policy_bytes": after,
            "reduction_percent": reduction_percent(before, after),
        }
        for section, (before, after) in sums.items()
    }


def _refusal_reason(measured: Measurements, compare: Callable[[np.ndarray], dict[str, Any]]) -> str | None:
    """Return why the policy is not better regardless of the reduction over all modules; None without such a reason."""
    if not measured.languages:
        return None
    reduction = compare(measured.unseen_project & (np.array(measured.languages) == "c"))["reduction_percent"]
    if reduction is None or reduction >= -MAX_C_GROWTH_PERCENT:
        return None
    return f"C modules of unseen projects are {change(reduction)}; the limit is {MAX_C_GROWTH_PERCENT:g}%"
