"""Tests of the figures that metrics.json computes from sizes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from components.core.projects.flags.types import FlagsComparison, FlagsProgram, RowResult, RowSizes, SectionSizes
from components.evaluation.measurements import Measurements
from components.evaluation.metrics import judge_whole_projects, refuse_without_gain_over_start, summarize
from components.evaluation.metrics_types import (
    BenchmarkSummary,
    InstructionTotals,
    LinkedTotal,
    LinkedTotals,
    SizeMetrics,
)


def summarize_sizes(measured: Measurements, min_reduction_percent: float) -> SizeMetrics:
    """Return the metrics of sizes, which have more figures than those of scores."""
    metrics = summarize(measured, min_reduction_percent)
    assert isinstance(metrics, SizeMetrics)
    return metrics


def test_totals_and_reduction(measured: Measurements) -> None:
    metrics = summarize_sizes(measured, min_reduction_percent=0.3)
    assert (metrics.modules, metrics.baseline_bytes, metrics.policy_bytes) == (4, 5000, 4980)
    assert metrics.reduction_percent == pytest.approx(0.4)
    assert (metrics.modules_smaller, metrics.modules_equal, metrics.modules_larger) == (2, 1, 1)
    assert metrics.warmstart is not None and metrics.warmstart.policy_bytes == 5010
    assert metrics.warmstart.reduction_percent == pytest.approx(-0.2)


@pytest.mark.parametrize(("required", "verdict"), [(0.39, "better"), (0.41, "not better")])
def test_verdict_compares_with_the_required_reduction(measured: Measurements, required: float, verdict: str) -> None:
    assert summarize_sizes(measured, min_reduction_percent=required).verdict == verdict


def make_totals(**variants: float) -> LinkedTotals:
    """Return linked totals by link variant, of which verdicts read the reduction."""
    return {
        variant: {
            "all": LinkedTotal(
                files=1,
                stock=SectionSizes(),
                policy=SectionSizes(),
                reduction_percent=percent,
                text_reduction_percent=None,
            )
        }
        for variant, percent in variants.items()
    }


@pytest.mark.parametrize(
    ("required", "percents", "verdict", "reason"),
    [
        (0.3, {"default": 5.0}, "better", None),
        (0.3, {"hidden": -1.0, "default": 5.0}, "better", None),
        (0.5, {"default": 5.0}, "better", None),  # the modules alone are not better
        (0.3, {"default": 0.2}, "not better", "text of linked programs and libraries is 0.20% smaller"),
        (0.3, {"hidden": -1.0}, "not better", "text of linked programs and libraries is 1.00% larger"),
        (0.3, {}, "better", None),
    ],
)
def test_linked_binaries_decide_the_verdict(
    measured: Measurements, required: float, percents: dict[str, float], verdict: str, reason: str | None
) -> None:
    metrics = summarize_sizes(measured, required)
    metrics.linked = make_totals(**percents)
    judge_whole_projects(metrics, None)
    assert (metrics.verdict, metrics.refused_because) == (verdict, reason)
    assert metrics.judged_by == ("linked" if percents else "modules")


def test_refusal_of_modules_also_holds_for_linked_binaries(measured: Measurements) -> None:
    metrics = summarize_sizes(measured, 0.3)
    metrics.verdict, metrics.refused_because, metrics.linked = "not better", "C is larger", make_totals(default=5.0)
    judge_whole_projects(metrics, None)
    assert (metrics.verdict, metrics.refused_because) == ("not better", "C is larger")


@pytest.mark.parametrize(("limit", "verdict"), [(None, "better"), (3.0, "better"), (2.9, "not better")])
def test_slowdown_of_programs_is_limited(measured: Measurements, limit: float | None, verdict: str) -> None:
    metrics = summarize_sizes(measured, 0.3)
    metrics.linked = make_totals(default=5.0)
    metrics.programs = BenchmarkSummary(
        instructions=InstructionTotals(100, 103),
        reduction_percent=-3.0,
        geometric_mean_reduction_percent=-3.0,
        counter="perf",
        programs=[],
    )
    judge_whole_projects(metrics, limit)
    assert metrics.verdict == verdict
    reason = None if verdict == "better" else "programs execute 3.00% more instructions; the limit is 2.9%"
    assert metrics.refused_because == reason


@pytest.mark.parametrize(("size", "verdict"), [(899, "better"), (900, "not better"), (None, "not better")])
def test_programs_have_to_be_smaller_than_in_stock_clangs_best_row(
    measured: Measurements, size: int | None, verdict: str
) -> None:
    metrics = summarize_sizes(measured, 0.3)
    results = [
        RowResult(row="layout", compiler="stock", sizes=RowSizes(stripped=1000)),
        RowResult(row="layout", compiler="heuristic", sizes=RowSizes(stripped=800)),
        RowResult(row="layout", compiler="policy", sizes=RowSizes(stripped=size) if size else None, failure="error: x"),
        RowResult(row="lto", compiler="stock", sizes=RowSizes(stripped=900)),
    ]
    program = FlagsProgram(
        project="p", name="app", language="c", results=results, best_stock=results[3], best=results[1]
    )
    metrics.flags = FlagsComparison(programs=[program])
    judge_whole_projects(metrics, None)
    assert metrics.verdict == verdict
    reason = (
        "linked, p/app has 900 bytes by the release clang (layout), and 900 by stock clang (lto), each under its best "
        "row"
    )
    failure = "p/app is built by the release clang under no row: error: x"
    assert metrics.refused_because == (None if verdict == "better" else reason if size else failure)


def test_sweep_and_best_threshold(measured: Measurements) -> None:
    metrics = summarize_sizes(measured, 0.5)
    assert list(metrics.sweep) == ["5", "15"]
    assert metrics.sweep["15"].policy_bytes == 4950
    assert metrics.best_threshold == 15


def test_known_and_unknown_projects_are_separate(measured: Measurements) -> None:
    metrics = summarize_sizes(measured, 0.5)
    unseen_modules, unseen_projects = metrics.groups.unseen_modules, metrics.groups.unseen_projects
    assert (unseen_modules.modules, unseen_modules.baseline_bytes, unseen_modules.policy_bytes) == (3, 4400, 4380)
    assert (unseen_projects.modules, unseen_projects.baseline_bytes, unseen_projects.policy_bytes) == (1, 600, 600)
    assert unseen_projects.warmstart is not None and unseen_projects.warmstart.policy_bytes == 610
    assert {name: entry.group for name, entry in metrics.per_project.items()} == {
        "lz4": "unseen_modules",
        "snappy": "unseen_projects",
        "zstd": "unseen_modules",
    }
    assert sum(entry.policy_bytes for entry in metrics.per_project.values()) == metrics.policy_bytes


def test_languages_are_separate(measured: Measurements) -> None:
    metrics = summarize_sizes(measured, 0.5)
    assert {name: (part.modules, part.policy_bytes) for name, part in metrics.languages.items()} == {
        "c": (3, 4380),
        "c++": (1, 600),
    }
    unknown = metrics.groups.unseen_projects.languages
    assert (unknown["c"].modules, unknown["c"].reduction_percent) == (0, None)
    assert unknown["c++"].baseline_bytes == 600


def test_sections_sum_to_the_text(measured: Measurements) -> None:
    metrics = summarize_sizes(measured, 0.5)
    assert list(metrics.sections) == [".text", ".rodata", ".eh_frame", ".gcc_except_table"]
    for figures in metrics.columns:
        assert sum(section.baseline_bytes for section in figures.sections.values()) == figures.baseline_bytes
        assert sum(section.policy_bytes for section in figures.sections.values()) == figures.policy_bytes
    assert metrics.sections[".text"].reduction_percent == pytest.approx(0.4)
    assert metrics.sections[".gcc_except_table"].reduction_percent is None


def test_measurements_of_earlier_versions_have_no_sections(measured: Measurements) -> None:
    document = json.loads(json.dumps(measured.to_json()))
    assert Measurements.from_json(document).sections["policy"][".text"].tolist() == [720, 2480, 304, 480]
    del document["sections"], document["languages"]
    document["modules"] = ["zstd/a.c.o", "zstd/b.o", "lz4/c.cpp.o", "snappy/d.cc.o"]
    earlier = Measurements.from_json(document)
    assert (earlier.sections, earlier.languages) == ({}, ("c", "other", "c++", "c++"))
    assert summarize_sizes(earlier, 0.5).sections == {}


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ([1001, 3003], None),
        ([1002, 3006], "C modules of unseen projects are 0.20% larger (at least 0.20%, by the 95% interval); "),
        ([1000, 3009], None),
        ([1002, 3005], "C modules of unseen projects are 0.17% larger (at least 0.17%, by the 95% interval); "),
        ([2000, 3000], None),
    ],
    ids=["within", "beyond", "one_of_two", "both", "one_module"],
)
def test_growth_of_c_code_beyond_noise_in_unseen_projects_prevents_better(
    policy: list[int], reason: str | None, make_measurements: Callable[..., Measurements]
) -> None:
    baseline = [1000, 9000, 1000, 3000]
    sizes = make_measurements(baseline=baseline, policy=[10, 8000, *policy], warmstart=baseline)
    unseen = replace(sizes, unseen_project=np.array([False, False, True, True]), languages=("c", "c", "c", "c"))
    metrics = summarize_sizes(unseen, 0.5)
    assert metrics.verdict == ("not better" if reason else "better")
    assert metrics.refused_because == (f"{reason}the limit is 0.1%" if reason else None)
    # The same growth in modules of known projects, or in C++, counts only in the sum.
    for other in (replace(unseen, unseen_project=np.zeros(4, bool)), replace(unseen, languages=("c++",) * 4)):
        assert summarize_sizes(other, 0.5).verdict == "better"


def test_growth_of_dispatchers_in_unseen_c_code_prevents_better(
    make_measurements: Callable[..., Measurements],
) -> None:
    """Sizes of generated dispatchers (recipe dispatchers: calls_100_8.c, calls_300_8.c) under the pretrained policy."""
    baseline = [40_000, 90_000, 2405, 7319]
    sizes = make_measurements(baseline=baseline, policy=[30_000, 80_000, 2857, 8132], warmstart=baseline)
    unseen = replace(sizes, unseen_project=np.array([False, False, True, True]), languages=("c", "c", "c", "c"))
    metrics = summarize_sizes(unseen, 0.5)
    assert metrics.reduction_percent is not None and metrics.reduction_percent > 10
    assert metrics.verdict == "not better"
    assert metrics.refused_because is not None and "C modules of unseen projects" in metrics.refused_because


@pytest.mark.parametrize(("policy", "refused"), [(3003, False), (3004, True)])
def test_growth_of_a_single_c_module_in_unseen_projects_prevents_better(
    policy: int, refused: bool, make_measurements: Callable[..., Measurements]
) -> None:
    baseline = [1000, 9000, 1000, 3000]
    sizes = make_measurements(baseline=baseline, policy=[10, 8000, 10, policy], warmstart=baseline)
    unseen = replace(sizes, unseen_project=np.array([False, False, False, True]), languages=("c", "c", "c", "c"))
    metrics = summarize_sizes(unseen, 0.5)
    reason = "C modules of unseen projects are 0.13% larger; the limit is 0.1%"
    assert metrics.refused_because == (reason if refused else None)


@pytest.mark.parametrize("start", [479, 480, 481])
@pytest.mark.parametrize("trained_by", ["ppo", "warmstart", ""])
def test_policy_must_be_better_than_its_trained_start(
    start: int, trained_by: str, make_measurements: Callable[..., Measurements]
) -> None:
    warmstart = [100, 200, 100, start - 400]
    sizes = make_measurements(baseline=[100, 200, 100, 100], policy=[90, 200, 95, 95], warmstart=warmstart)
    metrics = summarize_sizes(sizes, 0.5)
    assert metrics.verdict == "better"
    refused = trained_by == "ppo" and start <= 480
    assert refuse_without_gain_over_start(metrics, trained_by) == refused
    assert metrics.verdict == ("not better" if refused else "better")
    reason = "it is not better than the policy that training started from"
    assert metrics.refused_because == (reason if refused else None)


def test_empty_group_has_no_reduction(measured: Measurements) -> None:
    all_seen = replace(measured, unseen_project=np.zeros(4, dtype=bool), excluded=(), compile_s=None)
    unknown = summarize_sizes(all_seen, 0.5).groups.unseen_projects
    assert (unknown.modules, unknown.reduction_percent, unknown.best_threshold) == (0, None, None)


def test_modules_without_text_never_divide_by_zero(make_measurements: Callable[..., Measurements]) -> None:
    nothing = {name: [0, 0, 0, 0] for name in ("baseline", "policy", "warmstart", "inline_threshold_5")}
    metrics = summarize_sizes(make_measurements(**nothing, inline_threshold_15=[0, 0, 0, 0]), 0.0)
    assert metrics.reduction_percent is None
    assert metrics.verdict == "not better"


def test_columns_of_unequal_length_are_refused(make_measurements: Callable[..., Measurements]) -> None:
    with pytest.raises(ValueError, match="4 modules"):
        make_measurements(policy=[1, 2, 3])
