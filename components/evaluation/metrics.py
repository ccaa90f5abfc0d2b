"""Computes the figures and the verdict of metrics.json, whose types are in metrics_types.py. Compiles nothing."""

from __future__ import annotations

import numpy as np
from msgspec import UNSET
from msgspec.structs import asdict

from components.core.compiler.source_language import LANGUAGES
from components.core.objectives.size import reduction_percent
from components.core.projects.flags.compare import why_not_delivered
from components.evaluation.benchmarks.program_rows import execute_more, headline_total
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
    BinariesComparison,
    Group,
    Groups,
    Metrics,
    ScoreComparison,
    ScoreGroup,
    ScoreMetrics,
    ScoreProject,
    SectionComparison,
    SizeComparison,
    SizeGroup,
    SizeMetrics,
    SizeProject,
    WholeProjects,
)
from components.evaluation.report.formatting import change

MAX_C_GROWTH_PERCENT = 0.1
"""Maximum growth of the C modules of unseen projects in sum. C has less to inline than C++, so a loss on C is easily
hidden by a gain on C++. It counts only if the whole 95% interval over these modules is beyond: some trainings of one
method end above the limit by the chance of a few modules, others below."""

NO_GAIN_OVER_START = "it is not better than the policy that training started from"


def summarize(
    measured: Measurements, min_reduction_percent: float, seed: int, whole_projects: WholeProjects | None = None
) -> Metrics:
    """Return the verdict and all figures of metrics.json that are computed from measurements.

    Args:
        measured: values of the held-out modules; must have the "policy" variant.
        min_reduction_percent: minimum reduction for the verdict "better".
        seed: seed of the bootstrap intervals.
        whole_projects: result of `compare_whole_projects`, if whole projects were built.
    """
    whole = whole_projects or WholeProjects(BinariesComparison())
    metrics: Metrics
    if measured.objective.additive:
        metrics = _summarize_sizes(measured, min_reduction_percent, seed)
        metrics.linked = whole.binaries.linked
        metrics.flags = whole.flags or UNSET
    else:
        metrics = _summarize_scores(measured, min_reduction_percent, seed)
    metrics.excluded = list(measured.excluded)
    metrics.bootstrap_seed = seed
    metrics.compile_s = UNSET if measured.compile_s is None else measured.compile_s
    metrics.refused_because = _refusal_reason(measured, seed)
    metrics.binaries, metrics.programs = whole.binaries.binaries, whole.programs
    slower = measured.objective.programs_decide and whole.programs is not None and execute_more(whole.programs)
    reduction = metrics.reduction_percent
    enough = reduction is not None and reduction >= min_reduction_percent
    metrics.verdict = "better" if enough and metrics.refused_because is None and not slower else "not better"
    return metrics


def _summarize_sizes(measured: Measurements, min_reduction_percent: float, seed: int) -> SizeMetrics:
    """Return the figures of sizes, without a verdict."""
    unseen, projects = measured.unseen_project, np.array(measured.projects)
    kind = METRICS[measured.objective.name]
    assert issubclass(kind, SizeMetrics)
    return kind(
        **asdict(_size_group(measured, np.ones(len(measured.modules), dtype=bool), seed)),
        verdict="not better",
        min_reduction_percent=min_reduction_percent,
        groups=Groups(_size_group(measured, ~unseen, seed), _size_group(measured, unseen, seed)),
        per_project={
            project: SizeProject(
                **asdict(_compare_sizes(measured, projects == project, seed)), group=_group_of(measured, project)
            )
            for project in sorted(set(measured.projects))
        },
    )


def _summarize_scores(measured: Measurements, min_reduction_percent: float, seed: int) -> ScoreMetrics:
    """Return the figures of scores, without a verdict."""
    unseen, projects = measured.unseen_project, np.array(measured.projects)
    kind = METRICS[measured.objective.name]
    assert issubclass(kind, ScoreMetrics)
    return kind(
        **asdict(_score_group(measured, np.ones(len(measured.modules), dtype=bool), seed)),
        verdict="not better",
        min_reduction_percent=min_reduction_percent,
        groups=Groups(_score_group(measured, ~unseen, seed), _score_group(measured, unseen, seed)),
        per_project={
            project: ScoreProject(
                **asdict(_compare_scores(measured, projects == project, seed)), group=_group_of(measured, project)
            )
            for project in sorted(set(measured.projects))
        },
    )


def judge_whole_projects(metrics: SizeMetrics, max_slowdown_percent: float | None) -> None:
    """Base the verdict on whole projects: on the linked binaries, if known, on the programs under rows of flags, and on
    the instructions that they execute.

    Args:
        metrics: result of `summarize`; modified. The link variant "default" counts or, without it, the
            first one.
        max_slowdown_percent: maximum increase of the executed instructions in sum; None for no limit.
    """
    metrics.judged_by, metrics.max_slowdown_percent = "modules", max_slowdown_percent
    programs = metrics.programs
    if total := headline_total(metrics.linked):
        metrics.judged_by = "linked"
        required, reduction = metrics.min_reduction_percent, total.reduction_percent
        enough = reduction is not None and reduction >= required
        if not enough and metrics.verdict == "better":
            metrics.refused_because = f"linked programs and libraries are {change(reduction)}"
        metrics.verdict = "better" if enough and metrics.refused_because is None else "not better"
    if metrics.flags is not UNSET and (reason := why_not_delivered(metrics.flags, "policy")) is not None:
        metrics.verdict = "not better"
        metrics.refused_because = metrics.refused_because or reason
    if programs is None or max_slowdown_percent is None:
        return
    slowdown = -programs.reduction_percent
    if slowdown > max_slowdown_percent:
        metrics.verdict = "not better"
        metrics.refused_because = metrics.refused_because or (
            f"programs execute {slowdown:.2f}% more instructions; the limit is {max_slowdown_percent:g}%"
        )


def refuse_without_gain_over_start(metrics: Metrics, start_trained_by: str) -> bool:
    """Make the verdict "not better" if training started from a trained policy and is not better than that policy.

    A policy that only imitates the heuristic ("warmstart") does not count, because it is not a usable alternative.

    Args:
        metrics: result of `summarize`; modified.
        start_trained_by: the step that made the initial policy, "" if unknown.

    Returns:
        Whether the policy is refused for this reason.
    """
    start, reduction = metrics.warmstart, metrics.reduction_percent
    if start_trained_by in ("", WARMSTART) or start is None or reduction is None or start.reduction_percent is None:
        return False
    if reduction > start.reduction_percent:
        return False
    metrics.verdict = "not better"
    metrics.refused_because = metrics.refused_because or NO_GAIN_OVER_START
    return True


def _group_of(measured: Measurements, project: str) -> Group:
    return "unseen_projects" if measured.unseen_project[measured.projects.index(project)] else "unseen_modules"


def _compare_sizes(measured: Measurements, modules: np.ndarray, seed: int, variant: str = POLICY) -> SizeComparison:
    return measured.compare(variant, modules).size_figures(seed)


def _sizes_against(measured: Measurements, modules: np.ndarray, seed: int, variant: str) -> SizeComparison | None:
    if variant not in measured.values:
        return None
    return measured.compare(POLICY, modules, baseline=variant).size_figures(seed)


def _compare_scores(measured: Measurements, modules: np.ndarray, seed: int, variant: str = POLICY) -> ScoreComparison:
    return measured.compare(variant, modules).score_figures(seed)


def _scores_against(measured: Measurements, modules: np.ndarray, seed: int, variant: str) -> ScoreComparison | None:
    if variant not in measured.values:
        return None
    return measured.compare(POLICY, modules, baseline=variant).score_figures(seed)


def _score_group(measured: Measurements, modules: np.ndarray, seed: int) -> ScoreGroup:
    """Compare the scores of the modules of a mask, bool [M]."""
    return ScoreGroup(
        **asdict(_compare_scores(measured, modules, seed)),
        warmstart=_compare_scores(measured, modules, seed, WARMSTART) if WARMSTART in measured.values else None,
        reference=_compare_scores(measured, modules, seed, REFERENCE) if REFERENCE in measured.values else None,
        against_warmstart=_scores_against(measured, modules, seed, WARMSTART),
        against_reference=_scores_against(measured, modules, seed, REFERENCE),
    )


def _size_group(measured: Measurements, modules: np.ndarray, seed: int) -> SizeGroup:
    """Compare the sizes of the modules of a mask, bool [M], also by language and section and with the sweep."""
    languages = np.array(measured.languages)
    sweep = {
        threshold: _compare_sizes(measured, modules, seed, threshold_name(threshold))
        for threshold in measured.thresholds
    }
    has_best = sweep and modules.any()
    return SizeGroup(
        **asdict(_compare_sizes(measured, modules, seed)),
        warmstart=_compare_sizes(measured, modules, seed, WARMSTART) if WARMSTART in measured.values else None,
        reference=_compare_sizes(measured, modules, seed, REFERENCE) if REFERENCE in measured.values else None,
        against_warmstart=_sizes_against(measured, modules, seed, WARMSTART),
        against_reference=_sizes_against(measured, modules, seed, REFERENCE),
        sweep={str(threshold): comparison for threshold, comparison in sweep.items()},
        best_threshold=min(sweep, key=lambda threshold: sweep[threshold].policy_bytes) if has_best else None,
        languages={
            language: _compare_sizes(measured, modules & (languages == language), seed)
            for language in LANGUAGES
            if language in measured.languages
        },
        sections=_sections(measured, modules),
    )


def _sections(measured: Measurements, modules: np.ndarray) -> dict[str, SectionComparison]:
    """Compare the bytes in each kind of section, for the modules of a mask, bool [M]."""
    if not {BASELINE, POLICY} <= measured.sections.keys():
        return {}
    sums = {
        section: [int(measured.sections[variant][section][modules].sum()) for variant in (BASELINE, POLICY)]
        for section in SECTIONS
    }
    return {
        section: SectionComparison(
            baseline_bytes=before, policy_bytes=after, reduction_percent=reduction_percent(before, after)
        )
        for section, (before, after) in sums.items()
    }


def _refusal_reason(measured: Measurements, seed: int) -> str | None:
    """Return why the policy is not better regardless of the reduction over all modules; None without such a reason."""
    if not measured.languages:
        return None
    c_modules = measured.unseen_project & (np.array(measured.languages) == "c")
    comparison = measured.compare(POLICY, c_modules).figures(seed)
    reduction, interval = comparison.reduction_percent, comparison.reduction_percent_ci95
    least_growth = None if reduction is None else -(interval[1] if interval else reduction)
    if least_growth is None or least_growth <= MAX_C_GROWTH_PERCENT:
        return None
    bounds = f" (at least {least_growth:.2f}%, by the 95% interval)" if interval else ""
    return f"C modules of unseen projects are {change(reduction)}{bounds}; the limit is {MAX_C_GROWTH_PERCENT:g}%"
