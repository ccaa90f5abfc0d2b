"""Computes the figures and the verdict of metrics.json, whose types are in metrics_types.py. Compiles nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import UNSET
from msgspec.structs import asdict

from components.core.compiler.source_language import LANGUAGES
from components.core.projects.flags.compare import why_not_delivered
from components.evaluation.benchmarks.program_rows import headline_total, why_slower
from components.evaluation.claim import judges_own_build, reaches, verdict_on, why_not_shown
from components.evaluation.measurements import (
    BASELINE,
    POLICY,
    REFERENCE,
    SECTIONS,
    WARMSTART,
    Measurements,
    threshold_name,
)
from components.evaluation.metrics_types import (
    METRICS,
    NO_GAIN_OVER_START,
    BinariesComparison,
    Groups,
    Metrics,
    ScoreGroup,
    ScoreProject,
    SectionComparison,
    SizeGroup,
    SizeMetrics,
    SizeProject,
    WholeProjects,
)
from components.evaluation.report.formatting import beside, change

MAX_C_GROWTH_PERCENT = 0.1
"""Maximum growth of the C modules of unseen projects in sum. C has less to inline than C++, so a loss on C is easily
hidden by a gain on C++. It counts only if the whole 95% interval for other modules is beyond, or each of these modules:
some trainings of one method end above the limit by the chance of a few modules, others below."""


def summarize(
    measured: Measurements, min_reduction_percent: float, whole_projects: WholeProjects | None = None
) -> Metrics:
    """Return the verdict and all figures of metrics.json that are computed from measurements.

    Args:
        measured: values of the held-out modules; must have the "policy" variant.
        whole_projects: result of `compare_whole_projects`, if whole projects were built.
    """
    whole = whole_projects or WholeProjects(BinariesComparison())
    unseen, projects = measured.unseen_project, np.array(measured.projects)
    kind = METRICS[measured.objective.name]
    project_kind = SizeProject if measured.objective.additive else ScoreProject
    metrics = kind(
        **asdict(_group_figures(measured, np.ones(len(measured.modules), dtype=bool))),
        verdict="not better",
        min_reduction_percent=min_reduction_percent,
        groups=Groups(_group_figures(measured, ~unseen), _group_figures(measured, unseen)),
        per_project={
            project: project_kind(
                **asdict(measured.compare(POLICY, projects == project).figures()),
                group="unseen_projects" if unseen[measured.projects.index(project)] else "unseen_modules",
            )
            for project in sorted(set(measured.projects))
        },
    )
    if isinstance(metrics, SizeMetrics):
        metrics.linked = whole.binaries.linked
        metrics.binary_functions = whole.binaries.functions
        metrics.flags = whole.flags or UNSET
        metrics.own_build = whole.own_build or UNSET
    metrics.excluded = list(measured.excluded)
    metrics.compile_s = UNSET if measured.compile_s is None else measured.compile_s
    metrics.refused_because = _refusal_reason(measured)
    metrics.binaries, metrics.programs = whole.binaries.binaries, whole.programs
    slower = measured.objective.programs_decide and whole.programs is not None and why_slower(whole.programs)
    metrics.verdict = verdict_on(metrics, min_reduction_percent)
    if metrics.refused_because is not None or slower:
        metrics.verdict = "not better"
    elif metrics.verdict != "better" and reaches(metrics, min_reduction_percent):
        metrics.refused_because = why_not_shown(metrics, min_reduction_percent)
    return metrics


def judge_whole_projects(metrics: SizeMetrics, max_slowdown_percent: float | None) -> None:
    """Base the verdict on whole projects: on the linked binaries, if known, on the programs under rows of flags, and on
    the instructions that they execute.

    The files of the user's own build decide by themselves. Those of recipes are a few programs of held-out projects,
    and can only refuse a policy.

    Args:
        metrics: result of `summarize`; modified. The link variant "default" counts or, without it, the
            first one.
        max_slowdown_percent: maximum increase of the executed instructions, in sum and of each program; None for no
            limit.
    """
    metrics.judged_by, metrics.max_slowdown_percent = "modules", max_slowdown_percent
    programs = metrics.programs
    if total := headline_total(metrics.linked):
        metrics.judged_by = "linked"
        required, reduction = metrics.min_reduction_percent, total.reduction_percent
        refused = metrics.verdict == "not better" and metrics.refused_because is not None
        if reduction is None or reduction < required:
            if metrics.verdict != "not better":
                _refuse(metrics, f"text of linked programs and libraries is {change(reduction)}")
        elif judges_own_build(metrics) and not refused:
            metrics.verdict, metrics.refused_because = "better", None
    if metrics.flags is not UNSET and (reason := why_not_delivered(metrics.flags, "policy")) is not None:
        _refuse(metrics, reason)
    if programs is None or max_slowdown_percent is None:
        return
    slowdowns = {"programs execute": -programs.reduction_percent}
    slowdowns |= {f"{entry.project}/{entry.name} executes": entry.change_percent for entry in programs.programs}
    who, slowdown = next((one for one in slowdowns.items() if one[1] > max_slowdown_percent), ("", 0.0))
    if who:
        more = beside(slowdown, max_slowdown_percent)
        _refuse(metrics, f"{who} {more}% more instructions; the limit is {max_slowdown_percent:g}%")


def refuse_without_gain_over_start(metrics: Metrics, start_trained_by: str) -> bool:
    """Make the verdict "not better" if training started from a trained policy and is not shown to be better than it.

    A policy that only imitates the heuristic ("warmstart") does not count, because it is not a usable alternative.

    Args:
        metrics: result of `summarize`; modified.
        start_trained_by: the step that made the initial policy, "" if unknown.

    Returns:
        Whether the policy is refused for this reason.
    """
    against = metrics.against_warmstart
    if start_trained_by in ("", WARMSTART) or against is None or against.reduction_percent is None:
        return False
    if verdict_on(against, 0.0) == "better":
        return False
    _refuse(metrics, NO_GAIN_OVER_START)
    return True


def _refuse(metrics: Metrics, reason: str) -> None:
    """Make the verdict "not better" for a reason, unless there is another one already."""
    if metrics.refused_because is None or metrics.verdict == "not shown":
        metrics.refused_because = reason
    metrics.verdict = "not better"


def _group_figures(measured: Measurements, modules: np.ndarray) -> Any:
    """Return the SizeGroup or ScoreGroup of the modules of a mask, bool [M]; sizes also by language and section."""

    def compare(
        variant: str, baseline: str = BASELINE, chosen: np.ndarray = modules, of: Measurements | None = measured
    ) -> Any:
        if of is None or not {variant, baseline} <= of.values.keys():
            return None
        return of.compare(variant, chosen, baseline).figures(of_policies=baseline != BASELINE)

    figures = {
        **asdict(compare(POLICY)),
        "warmstart": compare(WARMSTART),
        "reference": compare(REFERENCE),
        "against_warmstart": compare(POLICY, WARMSTART),
        "against_reference": compare(POLICY, REFERENCE),
    }
    if not measured.objective.additive:
        return ScoreGroup(**figures)
    languages = np.array(measured.languages)
    sweep = {threshold: compare(threshold_name(threshold)) for threshold in measured.thresholds}
    has_best = sweep and modules.any()
    return SizeGroup(
        **figures,
        sweep={str(threshold): comparison for threshold, comparison in sweep.items()},
        best_threshold=min(sweep, key=lambda threshold: sweep[threshold].policy_bytes) if has_best else None,
        languages={
            language: compare(POLICY, chosen=modules & (languages == language))
            for language in LANGUAGES
            if language in measured.languages
        },
        sections=_sections(measured, modules),
        overlap=measured.overlap.figures(modules) if measured.overlap is not None and modules.any() else None,
        functions_once=compare(POLICY, of=measured.with_functions_once()) if modules.any() else None,
    )


def _sections(measured: Measurements, modules: np.ndarray) -> dict[str, SectionComparison]:
    """Compare the bytes in each kind of section, for the modules of a mask, bool [M]."""
    if not {BASELINE, POLICY} <= measured.sections.keys():
        return {}
    return {
        section: SectionComparison.of(
            *(int(measured.sections[variant][section][modules].sum()) for variant in (BASELINE, POLICY))
        )
        for section in SECTIONS
    }


def _refusal_reason(measured: Measurements) -> str | None:
    """Return why the policy is not better regardless of the reduction over all modules; None without such a reason."""
    if not measured.languages:
        return None
    c_modules = measured.unseen_project & (np.array(measured.languages) == "c")
    comparison = measured.compare(POLICY, c_modules)
    reduction, estimate = comparison.reduction_percent, comparison.other_modules()
    if reduction is None:
        return None
    interval = None if estimate is None else estimate.interval95
    least = measured.objective.growth_percent(comparison.baseline, comparison.other).min().item()
    bounds = f" (each by at least {beside(least, MAX_C_GROWTH_PERCENT)}%)" if comparison.module.size > 1 else ""
    if least <= MAX_C_GROWTH_PERCENT and interval is not None:
        least = -interval[1]
        growth = beside(least, MAX_C_GROWTH_PERCENT)
        bounds = f" (other modules of these projects by at least {growth}%, by the 95% interval)"
    if least <= MAX_C_GROWTH_PERCENT:
        return None
    return f"C modules of unseen projects are {change(reduction)}{bounds}; the limit is {MAX_C_GROWTH_PERCENT:g}%"
