"""metrics.json of a problem that is judged by size: figures and a verdict. Pure arithmetic, nothing is compiled here.

Layout (a *comparison* is `Comparison.to_json`: modules, baseline_bytes, policy_bytes, reduction_percent, ...)::

    measure "size"
    modules, baseline_bytes, policy_bytes, reduction_percent, reduction_percent_ci95, ...   all held-out modules
    verdict "better" | "not better", min_reduction_percent
    warmstart: comparison, or null            the same modules under the warmstart policy
    sweep: {"0": comparison, ...}             the default heuristic with -inline-threshold=N
    best_threshold: N or null                 the smallest of the sweep, on these very modules
    languages: {"c": comparison, "c++": comparison, ...}   modules of each language that there is
    sections: {".text": {baseline_bytes, policy_bytes, reduction_percent}, ...}   empty if they are not known
    refused_because: words, or null           why the verdict is "not better" whatever reduction_percent is
    groups: {"unseen_modules": G, "unseen_projects": G}   G: comparison with its own warmstart, sweep, best_threshold,
                                              languages, sections
    per_project: {name: comparison with "group"}
    judged_by "modules" | "linked"            whose reduction the verdict goes by
    binaries: [binaries.Binary.to_json()]     of whole projects, by link variant
    linked: {link variant: {"all" | "c" | "c++": {files, stock, policy, reduction_percent, text_reduction_percent}}}
    programs: what `programs.summarize_programs` gives, or null where none was run
    max_slowdown_percent: by how much more instructions programs may execute in sum, or null
    excluded: [{module, variant, reason, detail}]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from components.compiler.source_language import LANGUAGES
from components.evaluation.comparison import Comparison, reduction_percent
from components.evaluation.measurements import BASELINE, POLICY, SECTIONS, WARMSTART, Measured, Measurements
from components.evaluation.program_rows import headline
from components.evaluation.words import change

UNSEEN_MODULES = "unseen_modules"
UNSEEN_PROJECTS = "unseen_projects"
MAX_C_GROWTH_PERCENT = 0.1
"""C modules of unseen projects may be this much larger in sum. C has less to inline than C++, so a policy that gains on
C++ can lose there unnoticed."""

NO_BETTER_THAN_ITS_START = "it is not better than the policy that training started from"


def refuse_without_gain_over_start(metrics: dict[str, Any], start_trained_by: str) -> None:
    """Make the verdict "not better" if training started from a trained policy and did not get better than that.

    A policy that merely imitates the heuristic ("warmstart") is nothing that anyone could use instead.

    Args:
        metrics: of `summarize` or `summarize_scores`; changed.
        start_trained_by: the step that made the first policy, "" if it is not known.
    """
    start, reduction = metrics["warmstart"], metrics["reduction_percent"]
    if start_trained_by in ("", WARMSTART) or start is None or None in (reduction, start["reduction_percent"]):
        return
    if reduction <= start["reduction_percent"]:
        metrics["verdict"] = "not better"
        metrics["refused_because"] = metrics["refused_because"] or NO_BETTER_THAN_ITS_START


def judge_whole_programs(
    metrics: dict[str, Any],
    linked: Mapping[str, Any],
    programs: Mapping[str, Any] | None,
    max_slowdown_percent: float | None,
) -> None:
    """Have the verdict go by what whole projects link to, where that is known, and by what their programs execute.

    Args:
        metrics: of `summarize`; changed.
        linked: of `binaries.linked_totals`. Programs and libraries as the projects link them count, or else those of
            the first link variant that there is.
        programs: of `programs.summarize_programs`.
        max_slowdown_percent: programs may execute so many percent more instructions in sum; None: any number.
    """
    metrics |= {"judged_by": "modules", "programs": programs, "max_slowdown_percent": max_slowdown_percent}
    if total := headline(linked):
        metrics["judged_by"] = "linked"
        wanted, reduction = metrics["min_reduction_percent"], total["reduction_percent"]
        enough = reduction is not None and reduction >= wanted
        if not enough and metrics["verdict"] == "better":
            metrics["refused_because"] = f"linked programs and libraries are {change(reduction)}"
        metrics["verdict"] = "better" if enough and metrics["refused_because"] is None else "not better"
    if programs is None or max_slowdown_percent is None:
        return
    slowdown = -programs["reduction_percent"]
    if slowdown > max_slowdown_percent:
        metrics["verdict"] = "not better"
        metrics["refused_because"] = metrics["refused_because"] or (
            f"programs execute {slowdown:.2f}% more instructions, and {max_slowdown_percent:g}% is allowed"
        )


def summarize(measured: Measurements, min_reduction_percent: float, seed: int) -> dict[str, Any]:
    """All figures of metrics.json that follow from the sizes.

    Args:
        measured: sizes of the held-out modules; must have the "policy" variant.
        min_reduction_percent: the verdict is "better" from this reduction on.
        seed: of the bootstrap intervals.
    """
    baseline, languages = measured.sizes[BASELINE], np.array(measured.languages)

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
            "languages": {
                language: compare(mask & (languages == language))
                for language in LANGUAGES
                if language in measured.languages
            },
            "sections": _sections(measured, mask),
        }

    because = _refused_because(measured, compare)
    parts = summarize_parts(measured, compare, others, min_reduction_percent, seed, because is not None)
    return {**parts, "refused_because": because}


def _sections(measured: Measurements, mask: np.ndarray) -> dict[str, dict[str, Any]]:
    """Compare the bytes in each kind of section of some of the modules, bool [N]."""
    if not {BASELINE, POLICY} <= measured.sections.keys():
        return {}
    sums = {
        section: [int(measured.sections[variant][section][mask].sum()) for variant in (BASELINE, POLICY)]
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


def _refused_because(measured: Measurements, compare: Callable[[np.ndarray], dict[str, Any]]) -> str | None:
    """Say in words why the policy is not good enough, whatever the reduction over all modules is; None if it may be."""
    found = compare(measured.unseen_project & (np.array(measured.languages) == "c"))["reduction_percent"]
    if found is None or found >= -MAX_C_GROWTH_PERCENT:
        return None
    return f"C modules of unseen projects are {change(found)}, and {MAX_C_GROWTH_PERCENT:g}% is allowed"


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
