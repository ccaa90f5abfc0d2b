"""Tests of the figures that metrics.json computes from sizes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from components.core.objectives import SIZE
from components.core.objectives.estimate import MODULES, Estimate
from components.core.projects.flags.types import FlagsComparison, FlagsProgram, RowResult, RowSizes, SectionSizes
from components.evaluation.benchmarks.benchmark_comparison import BenchmarkComparison, summarize_programs
from components.evaluation.claim import why_not_shown
from components.evaluation.measurements import BASELINE, POLICY, Measurements
from components.evaluation.metrics import judge_whole_projects, refuse_without_gain_over_start, summarize
from components.evaluation.metrics_types import (
    NO_GAIN_OVER_START,
    BinariesComparison,
    LinkedTotal,
    LinkedTotals,
    OwnBuild,
    RunMetrics,
    SizeMetrics,
    WholeProjects,
)
from components.evaluation.report.policy_choice import headline


def summarize_sizes(
    measured: Measurements, min_reduction_percent: float, whole: WholeProjects | None = None
) -> SizeMetrics:
    """Return the metrics of sizes, which have more figures than those of scores, judged by whole projects if given."""
    metrics = summarize(measured, min_reduction_percent, whole)
    assert isinstance(metrics, SizeMetrics)
    if whole:
        judge_whole_projects(metrics, None)
    return metrics


def test_totals_and_reduction(measured: Measurements) -> None:
    metrics = summarize_sizes(measured, min_reduction_percent=0.3)
    assert (metrics.modules, metrics.baseline_bytes, metrics.policy_bytes) == (4, 5000, 4980)
    assert metrics.reduction_percent == pytest.approx(0.4)
    assert (metrics.modules_smaller, metrics.modules_equal, metrics.modules_larger) == (2, 1, 1)
    assert metrics.warmstart is not None and metrics.warmstart.policy_bytes == 5010
    assert metrics.warmstart.reduction_percent == pytest.approx(-0.2)
    assert (list(metrics.sweep), metrics.sweep["15"].policy_bytes, metrics.best_threshold) == (["5", "15"], 4950, 15)


@pytest.mark.parametrize(
    ("required", "verdict", "noisy", "reason"),
    [
        (0.39, "better", "not shown", "other modules of these projects may gain nothing"),
        (0.41, "not better", "not better", None),
    ],
)
def test_verdict_compares_with_the_required_reduction(
    shown: Measurements, measured: Measurements, required: float, verdict: str, noisy: str, reason: str | None
) -> None:
    """The modules of `measured` are noisy."""
    metrics = summarize_sizes(shown, required)
    assert (metrics.verdict, metrics.refused_because) == (verdict, None)
    metrics = summarize_sizes(measured, required)
    assert (metrics.verdict, metrics.refused_because) == (noisy, reason)


def make_projects(percents: Sequence[float], known_percent: float = 0.0, known: int = 0) -> Measurements:
    """Return three modules of each unseen project, smaller by a percentage, and modules of a known project."""
    changes = np.array([known_percent] * known + [percent for percent in percents for _ in range(3)])
    baseline = np.full(changes.size, 100_000)
    names = ["known"] * known + [f"unseen{number}" for number in range(len(percents)) for _ in range(3)]
    return Measurements(
        SIZE,
        tuple(f"{index}.o" for index in range(changes.size)),
        tuple(names),
        np.array([name != "known" for name in names]),
        {"baseline": baseline, "policy": np.round(baseline * (1 - changes / 100)).astype(np.int64)},
        languages=("c++",) * changes.size,
    )


@pytest.mark.parametrize(
    ("measured_sizes", "verdict", "reason"),
    [
        (make_projects([1.9, 2.0, 2.1, 2.0, 2.0]), "better", None),
        # Modules alone would show it: those of a project have the same gain.
        (make_projects([9, -4, 8, -3, 2, 1]), "not shown", "other projects like these may gain nothing"),
        (make_projects([9, 1, 8, 2]), "not shown", "4 projects cannot tell how projects differ: it takes 5"),
        # Where known projects have held-out modules, these are claimed, too, but not hidden that others lose.
        (make_projects([-2, -2.1, -1.9, -2, -2], 9, 20), "not better", "it is worse on other projects like these"),
        (make_projects([0.2, 0.21, 0.19, 0.2, 0.2], 9, 20), "better", None),
        (make_projects([0.2, 0.21, 0.19, 0.2, 2.2]), "not shown", "other projects like these may gain nothing"),
    ],
)
def test_verdict_claims_other_projects_if_all_are_unseen(
    measured_sizes: Measurements, verdict: str, reason: str | None
) -> None:
    metrics = summarize_sizes(measured_sizes, 0.5)
    assert (metrics.verdict, metrics.refused_because) == (verdict, reason)


def test_a_requirement_of_nothing_still_asks_for_a_gain(make_measurements: Callable[..., Measurements]) -> None:
    equal = make_measurements(policy=[1000, 3000, 400, 600])
    assert summarize_sizes(equal, 0.0).verdict == "not better"
    larger = make_measurements(policy=[1010, 3030, 404, 606])
    assert summarize_sizes(larger, 0.0).verdict == "not better"
    assert summarize_sizes(larger, -2.0).verdict == "better", "who accepts 2% has it shown that it is no more"
    noisy = summarize_sizes(make_measurements(policy=[900, 3300, 380, 470]), -2.0)
    assert noisy.verdict == "not shown" and noisy.refused_because.endswith("more than 2%")


def make_totals(**variants: float) -> LinkedTotals:
    """Return linked totals by link variant, of which verdicts read the reduction."""
    none: dict[str, Any] = {"stock": SectionSizes(), "policy": SectionSizes()}
    return {
        variant: {"all": LinkedTotal(files=1, reduction_percent=percent, text_reduction_percent=None, **none)}
        for variant, percent in variants.items()
    }


LARGER, SHOWN, NOISY = [1019, 3057, 408, 611], [996, 2988, 398, 598], [900, 3100, 380, 600]
"""1.90% larger; smaller, which modules show; smaller, which they do not show."""
TOO_LITTLE = "text of linked programs and libraries is 0.20% smaller"


@pytest.mark.parametrize(
    ("policy", "required", "percents", "verdict", "reason"),
    [
        (SHOWN, 0.3, {"default": 5.0}, "better", None),
        (SHOWN, 0.3, {"hidden": -1.0, "default": 5.0}, "better", None),
        (SHOWN, 0.5, {"default": 5.0}, "not better", None),  # linked files of recipes do not make up for the modules
        (SHOWN, 0.3, {"default": 0.2}, "not better", TOO_LITTLE),
        (SHOWN, 0.3, {"hidden": -1.0}, "not better", "text of linked programs and libraries is 1.00% larger"),
        (SHOWN, 0.3, {}, "better", None),
        (NOISY, 0.3, {"default": 5.0}, "not shown", "other modules of these projects may gain nothing"),
        (LARGER, 0.3, {"default": 5.0}, "not better", None),
    ],
)
def test_linked_binaries_of_recipes_only_refuse(
    make_measurements: Callable[..., Measurements],
    policy: list[int],
    required: float,
    percents: dict[str, float],
    verdict: str,
    reason: str | None,
) -> None:
    whole = WholeProjects(BinariesComparison(linked=make_totals(**percents)))
    metrics = summarize_sizes(make_measurements(policy=policy), required, whole)
    assert (metrics.verdict, metrics.refused_because) == (verdict, reason)
    assert metrics.judged_by == ("linked" if percents else "modules")


@pytest.mark.parametrize(
    ("policy", "linked", "verdict", "reason"),
    [
        (LARGER, 3.0, "better", None),
        (SHOWN, 3.0, "better", None),
        (NOISY, 3.0, "better", None),  # modules alone do not show it
        (LARGER, 0.2, "not better", None),
        (SHOWN, 0.2, "not better", TOO_LITTLE),
        (NOISY, 0.2, "not better", TOO_LITTLE),
    ],
)
def test_linked_files_of_the_own_build_decide(
    make_measurements: Callable[..., Measurements], policy: list[int], linked: float, verdict: str, reason: str | None
) -> None:
    whole = WholeProjects(BinariesComparison(linked=make_totals(default=linked)), own_build=OwnBuild(source="recorded"))
    metrics = summarize_sizes(make_measurements(policy=policy), 0.3, whole)
    assert (metrics.verdict, metrics.refused_because, metrics.judged_by) == (verdict, reason, "linked")


@pytest.mark.parametrize("own_build", [None, OwnBuild(source="recorded")])
def test_refusal_of_modules_also_holds_for_linked_binaries(shown: Measurements, own_build: OwnBuild | None) -> None:
    whole = WholeProjects(BinariesComparison(linked=make_totals(default=5.0)), own_build=own_build)
    metrics = summarize_sizes(shown, 0.3, whole)
    metrics.verdict, metrics.refused_because = "not better", "C is larger"
    judge_whole_projects(metrics, None)
    assert (metrics.verdict, metrics.refused_because) == ("not better", "C is larger")


@pytest.mark.parametrize(
    ("counts", "limit", "more"),
    [
        ([1_250_000], None, ""),
        ([1_250_000], 25.0, ""),
        ([1_250_000], 24.9, "25.00% more"),
        # One program of two is slower than the sum of both, by less than the limit's digits show.
        ([900_000, 1_010_010], 1.0, "1.001%"),
    ],
)
def test_slowdown_of_programs_is_limited(
    shown: Measurements, counts: list[int], limit: float | None, more: str
) -> None:
    metrics = summarize_sizes(shown, 0.3)
    metrics.linked = make_totals(default=5.0)
    metrics.programs = summarize_programs(
        [
            BenchmarkComparison("p", "x", "bin/x", RunMetrics(1_000_000, None, 5), RunMetrics(count, None, 5), "perf")
            for count in counts
        ]
    )
    judge_whole_projects(metrics, limit)
    assert metrics.verdict == ("not better" if more else "better")
    assert more in (metrics.refused_because or "")


@pytest.mark.parametrize(("size", "verdict"), [(899, "better"), (900, "not better"), (None, "not better")])
def test_programs_have_to_be_smaller_than_in_stock_clangs_best_row(
    shown: Measurements, size: int | None, verdict: str
) -> None:
    metrics = summarize_sizes(shown, 0.3)
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
    reason = None if verdict == "better" else "p/app has 900 bytes" if size else "no row: error: x"
    assert reason is metrics.refused_because or reason in metrics.refused_because


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


def test_languages_and_sections_are_separate(measured: Measurements) -> None:
    metrics = summarize_sizes(measured, 0.5)
    assert {name: (part.modules, part.policy_bytes) for name, part in metrics.languages.items()} == {
        "c": (3, 4380),
        "c++": (1, 600),
    }
    unknown = metrics.groups.unseen_projects.languages
    assert (unknown["c"].modules, unknown["c"].reduction_percent) == (0, None)
    assert unknown["c++"].baseline_bytes == 600
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


def with_c_modules(baseline: list[int], policy: list[int]) -> Measurements:
    """Return C modules of an unseen project after 40 modules of a known one, all 10% smaller."""
    count = len(baseline)
    sizes = {"baseline": [100_000] * 40 + baseline, "policy": [90_000] * 40 + policy}
    return Measurements(
        SIZE,
        tuple(f"{index}.o" for index in range(40 + count)),
        ("known",) * 40 + ("unseen",) * count,
        np.array([False] * 40 + [True] * count),
        {name: np.array(column) for name, column in sizes.items()},
        languages=("c",) * (40 + count),
    )


EIGHT = [100_900, 101_100, 101_000, 99_900, 101_200, 101_000, 100_900, 101_000]
"""One of eight modules of 100,000 is smaller, but the interval for others begins at a growth beyond the limit."""


@pytest.mark.parametrize(
    ("baseline", "policy", "reason"),
    [
        ([1000, 3000], [1001, 3003], None),
        ([1000, 3000], [1002, 3006], "(each by at least 0.20%)"),
        ([1000, 3000], [1000, 3009], None),
        ([1000, 3000], [1002, 3005], "(each by at least 0.17%)"),
        ([1000, 3000], [2000, 3000], None),
        ([3000], [3003], None),
        ([3000], [3004], "0.13% larger"),
        ([100_000] * 8, EIGHT, "by at least 0.5"),
        # Generated dispatchers (recipe dispatchers: calls_100_8.c, calls_300_8.c) under the pretrained policy.
        ([2405, 7319], [2857, 8132], "C modules of unseen projects"),
    ],
)
def test_growth_of_c_code_beyond_noise_in_unseen_projects_prevents_better(
    baseline: list[int], policy: list[int], reason: str | None
) -> None:
    unseen = with_c_modules(baseline, policy)
    metrics = summarize_sizes(unseen, 0.5)
    assert metrics.verdict == ("not better" if reason else "better")
    assert reason is metrics.refused_because or reason in metrics.refused_because
    # The same growth in modules of known projects, or in C++, counts only in the sum.
    count = len(unseen.modules)
    for other in (replace(unseen, unseen_project=np.zeros(count, bool)), replace(unseen, languages=("c++",) * count)):
        assert summarize_sizes(other, 0.5).verdict == "better"


@pytest.mark.parametrize(
    ("start", "gain"),
    [
        ([990, 2970, 396, 594], True),
        ([980, 2940, 392, 588], False),
        ([985, 2935, 391, 592], False),
        ([970, 2910, 388, 582], False),
    ],
    ids=["better", "equal", "noise", "worse"],
)
@pytest.mark.parametrize("trained_by", ["ppo", "warmstart", ""])
def test_policy_must_be_shown_better_than_its_trained_start(
    start: list[int], gain: bool, trained_by: str, make_measurements: Callable[..., Measurements]
) -> None:
    metrics = summarize_sizes(make_measurements(policy=[980, 2940, 392, 588], warmstart=start), 0.5)
    assert metrics.verdict == "better"
    refused = trained_by == "ppo" and not gain
    assert refuse_without_gain_over_start(metrics, trained_by) == refused
    assert metrics.verdict == ("not better" if refused else "better")
    assert metrics.refused_because == (NO_GAIN_OVER_START if refused else None)


def test_policy_that_is_its_start_plus_noise_is_rarely_better() -> None:
    """By point estimates, half of them were."""
    generator, better = np.random.default_rng(1), 0
    for _ in range(200):
        baseline = np.round(np.exp(1.5 * generator.standard_normal(40)) * 4000 + 500)
        start = np.round(baseline * (1 - generator.normal(0.05, 0.03, 40)))
        policy = np.round(start * (1 - generator.normal(0, 0.02, 40)))
        values = {"baseline": baseline, "policy": policy, "warmstart": start}
        names = tuple(f"{index}.o" for index in range(40))
        sizes = {name: column.astype(np.int64) for name, column in values.items()}
        metrics = summarize(Measurements(SIZE, names, ("p",) * 40, np.zeros(40, bool), sizes), 0.5)
        better += not refuse_without_gain_over_start(metrics, "ppo")
    assert better / 200 <= 0.05


def test_empty_group_has_no_reduction(measured: Measurements) -> None:
    all_seen = replace(measured, unseen_project=np.zeros(4, dtype=bool), excluded=(), compile_s=None)
    unknown = summarize_sizes(all_seen, 0.5).groups.unseen_projects
    assert (unknown.modules, unknown.reduction_percent, unknown.best_threshold) == (0, None, None)


def test_modules_without_text_never_divide_by_zero(make_measurements: Callable[..., Measurements]) -> None:
    nothing = {name: [0, 0, 0, 0] for name in ("baseline", "policy", "warmstart", "inline_threshold_5")}
    metrics = summarize_sizes(make_measurements(**nothing, inline_threshold_15=[0, 0, 0, 0]), 0.0)
    assert metrics.reduction_percent is None and metrics.other_modules is None
    assert metrics.verdict == "not better"


@pytest.mark.filterwarnings("error")
def test_modules_and_projects_without_text_are_no_units() -> None:
    """Of five unseen projects, one has no text: four do not tell how projects differ."""
    sizes = make_projects([2.0, 2.0, 2.1, 2.0, 0.0])
    for values in sizes.values.values():
        values[-3:] = 0
    metrics = summarize_sizes(sizes, 0.5)
    assert metrics.other_projects is not None and metrics.other_modules is not None
    assert (metrics.other_modules.units, metrics.other_projects.units) == (12, 4)
    assert "4 projects" in metrics.other_projects.why_no_interval
    assert metrics.verdict == "not shown"
    sizes.values["policy"][-3:] = 10_000  # text where the heuristic leaves none
    metrics = summarize_sizes(sizes, 0.5)
    assert metrics.other_modules is not None and metrics.other_modules.interval95 is not None
    assert (metrics.verdict, metrics.other_modules.units) == ("not better", 12)


@pytest.mark.filterwarnings("error")
def test_one_module_and_one_project_have_a_sentence() -> None:
    one = make_projects([], 2.0, 1)
    metrics = summarize_sizes(one, 0.5)
    assert "1 module" in headline(metrics)
    metrics = summarize_sizes(make_projects([2.0]), 0.5)
    assert metrics.verdict == "not shown"
    assert "1 project" in metrics.refused_because
    # No module in common: nothing to compare.
    assert one.compare_policies(replace(one, modules=("other.o",))).figures().reduction_percent is None


def test_columns_of_unequal_length_are_refused(make_measurements: Callable[..., Measurements]) -> None:
    with pytest.raises(ValueError, match="4 modules"):
        make_measurements(policy=[1, 2, 3])


def test_estimate_below_the_requirement_has_the_digits_that_tell() -> None:
    """Copies of a function count once for other code, so that the estimate may be less than what was measured."""
    measured = Estimate(target=MODULES, units=9, reduction_percent=0.49996, interval95=(0.4, 0.6))
    values = {BASELINE: np.array([1000]), POLICY: np.array([900])}
    metrics = summarize(Measurements(SIZE, ("a",), ("p",), np.zeros(1, bool), values), 0.5)
    metrics.reduction_percent, metrics.other_modules, metrics.of_unseen_projects = 0.6, measured, False
    assert "0.49996%" in why_not_shown(metrics, 0.5)


@pytest.mark.parametrize(
    ("sizes", "verdict"), [([900, 1100, 900, 1100, 1000, 1000], "not shown"), ([1000] * 6, "better")]
)
def test_no_change_in_sum_has_a_sentence_where_a_growth_is_accepted(sizes: list[int], verdict: str) -> None:
    names = tuple("abcdef")
    values = {BASELINE: np.full(6, 1000), POLICY: np.array(sizes)}
    metrics = summarize(Measurements(SIZE, names, names, np.ones(6, bool), values), -1.0)
    text = headline(metrics)
    assert metrics.verdict == verdict and ": the same as stock -Oz on 6 held-out modules" in text
    assert text.endswith("other projects like these may lose more than 1%") == (verdict == "not shown")
