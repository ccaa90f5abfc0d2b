"""Tests of the figures that metrics.json and the table compute from scores."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core import problems
from components.core.objectives import OBJECTIVES, SCORE
from components.core.objectives.geometric_mean import FLOOR
from components.core.objectives.score import Score
from components.core.projects.speed.types import TimeChange
from components.evaluation.benchmarks import program_rows
from components.evaluation.measurements import (
    FILE,
    Measurements,
    read_measurements,
    report_csv,
    write_measurements,
)
from components.evaluation.metrics import summarize
from components.evaluation.metrics_types import (
    METRICS,
    BenchmarkEntry,
    BenchmarkSummary,
    BinariesComparison,
    InstructionTotals,
    RunMetrics,
    ScoreComparison,
    ScoreMetrics,
    WholeProjects,
    decode_metrics,
    encode_json,
)
from components.evaluation.report import terminal_report
from components.evaluation.report.html_report import write_page
from components.platform.errors import UserError

MakeScores = Callable[..., Measurements]
score = st.floats(0, 1e9)


def programs(stock: int, policy: int, time: tuple[float, float] | None = None) -> BenchmarkSummary:
    """Return a result of summarize_programs for one program; `time`: the interval of its change."""
    entry = BenchmarkEntry(
        project="snappy",
        name="bench",
        program="snappy_benchmark",
        stock=RunMetrics(stock, 9, 5),
        policy=RunMetrics(policy, 8, 5),
        change_percent=100 * (policy / stock - 1),
    )
    reduction = 100 * (1 - policy / stock)
    summary = BenchmarkSummary(
        instructions=InstructionTotals(stock, policy),
        reduction_percent=reduction,
        geometric_mean_reduction_percent=reduction,
        counter="perf",
        programs=[entry],
    )
    if time:
        change = sum(time) / 2
        summary.time = TimeChange(stock_s=1, policy_s=1, repeats=20, change_percent=change, interval_percent=time)
    return summary


def summarize_scores(
    measured: Measurements, min_reduction_percent: float, run: BenchmarkSummary | None = None
) -> ScoreMetrics:
    """Return the metrics of scores, with executed instructions if programs ran."""
    metrics = summarize(measured, min_reduction_percent, WholeProjects(BinariesComparison(), run))
    assert isinstance(metrics, ScoreMetrics)
    return metrics


def test_reduction_is_the_geometric_mean_over_functions(scored: Measurements) -> None:
    metrics = summarize_scores(scored, 0.5)
    # Factors 1/2, 1, 2, 1/4, 1 of scores with FLOOR added.
    assert metrics.reduction_percent == pytest.approx(100 * (1 - 0.25 ** (1 / 5)))
    assert (metrics.measure, metrics.modules, metrics.functions) == ("score", 3, 5)
    assert (metrics.functions_lower, metrics.functions_equal, metrics.functions_higher) == (2, 2, 1)
    assert metrics.warmstart is not None and metrics.warmstart.reduction_percent == 0
    assert metrics.verdict == "not shown" and metrics.binaries == [] and metrics.programs is None
    assert "gain nothing" in metrics.refused_because
    assert not {"baseline_bytes", "sweep", "linked"} & json.loads(encode_json(metrics)).keys()


def test_known_and_unknown_projects_are_separate(scored: Measurements) -> None:
    metrics = summarize_scores(scored, 0.5)
    unseen_modules, unseen_projects = metrics.groups.unseen_modules, metrics.groups.unseen_projects
    assert (unseen_modules.modules, unseen_modules.functions) == (2, 3)
    assert (unseen_projects.modules, unseen_projects.functions) == (1, 2)
    assert unseen_modules.reduction_percent == pytest.approx(0, abs=1e-9)
    assert unseen_projects.reduction_percent == pytest.approx(50)
    groups = {name: (entry.group, entry.functions) for name, entry in metrics.per_project.items()}
    assert groups == {"lz4": ("unseen_modules", 1), "snappy": ("unseen_projects", 2), "zstd": ("unseen_modules", 2)}


@pytest.mark.parametrize(
    ("required", "run", "verdict"),
    [
        (24.2, None, "better"),
        (24.3, None, "not better"),
        (1, programs(100, 100), "better"),
        (1, programs(100, 101), "not better"),
        (24.3, programs(100, 50), "not better"),
        (1, programs(100, 99, (-0.1, 0.5)), "better"),
        (1, programs(100, 99, (0.1, 0.5)), "not better"),
    ],
)
def test_slower_programs_prevent_better(
    shown_scores: Measurements, required: float, run: BenchmarkSummary | None, verdict: str
) -> None:
    assert summarize_scores(shown_scores, required, run).verdict == verdict


def test_slower_programs_are_the_reason_where_scores_do_not_show_a_gain(scored: Measurements) -> None:
    for run, reason in (
        (programs(100, 101), "more instructions"),
        (programs(100, 99), "not shown, because other modules of these projects may gain nothing"),
        (slower := programs(100, 99, (0.1, 0.5)), "more time"),
    ):
        metrics = summarize_scores(scored, 1, run)
        assert reason in program_rows.verdict(metrics, run)
    assert "processor time +0.30%, 95% interval +0.10% … +0.50%, 20 runs" in program_rows.summary(slower)
    assert "time" in program_rows.columns(slower) and program_rows.rows(slower)[0][-3:-1] == ("–", "–")
    assert decode_metrics(encode_json(metrics).encode()) == metrics


def test_no_functions_are_not_better(tmp_path: Path) -> None:
    values = {"baseline": np.zeros(0), "policy": np.zeros(0)}
    empty = Measurements(SCORE, ("a/leaf.o",), ("a",), np.array([True]), values)
    metrics = summarize_scores(empty, 0.0)
    assert (metrics.reduction_percent, metrics.verdict, metrics.modules) == (None, "not better", 0)
    assert metrics.per_project["a"].functions == 0
    assert decode_metrics(encode_json(metrics).encode()) == metrics
    write_page(tmp_path / "report.html", metrics, empty, None)
    assert "No function" in (tmp_path / "report.html").read_text()


@given(st.lists(st.tuples(score, score, st.integers(0, 3)), min_size=1, max_size=12))
def test_reverse_comparison_is_the_inverse_and_the_interval_is_finite(rows: list[tuple[float, float, int]]) -> None:
    before, after, module = (np.array(column) for column in zip(*rows, strict=True))
    modules, cases = int(module.max()) + 1, len(rows)
    values = Measurements(
        SCORE,
        tuple(f"m{index}.o" for index in range(modules)),
        ("project",) * modules,
        np.zeros(modules, bool),
        {"baseline": before, "policy": after},
        tuple(f"f{index}" for index in range(cases)),
        module,
    )
    forward = values.compare("policy").figures()
    assert isinstance(forward, ScoreComparison)
    reverse = values.compare("baseline", baseline="policy")
    assert forward.reduction_percent is not None and reverse.reduction_percent is not None
    assert (1 - forward.reduction_percent / 100) * (1 - reverse.reduction_percent / 100) == pytest.approx(1, rel=1e-6)
    assert forward.functions_lower + forward.functions_equal + forward.functions_higher == len(rows)
    assert forward.other_projects is None and forward.other_modules is not None
    bounds = forward.other_modules.interval95
    assert (bounds is None) == (len(set(module.tolist())) < 2)
    assert bounds is None or (np.isfinite(bounds).all() and bounds[0] <= bounds[1])


def test_inline_function_of_several_modules_counts_once_for_other_code() -> None:
    """Of four modules, three have the same function: the measured reduction has it three times, the estimate once."""
    values = {"baseline": np.array([100.0, 100, 100, 50, 70]), "policy": np.array([50.0, 50, 50, 50, 70])}
    names = ("a.o", "b.o", "c.o", "d.o")
    functions, module = ("inline", "inline", "inline", "f", "g"), np.array([0, 1, 2, 3, 3])
    measured = Measurements(SCORE, names, ("p",) * 4, np.zeros(4, bool), values, functions, module)
    figures = measured.compare("policy").figures()
    assert figures.reduction_percent == pytest.approx(100 * (1 - (51 / 101) ** (3 / 5)))
    assert figures.other_modules is not None
    assert figures.other_modules.reduction_percent == pytest.approx(100 * (1 - (51 / 101) ** (1 / 3)))


def test_measurements_round_trip_through_their_file(scored: Measurements, tmp_path: Path) -> None:
    write_measurements(tmp_path, scored)
    restored = read_measurements(tmp_path)
    assert isinstance(restored, Measurements)
    assert restored.to_json() == scored.to_json()
    assert restored.values["policy"].dtype == np.float64 and restored.excluded == scored.excluded
    for damage in ('{"measure": "speed"}', "[]", '{"measure": "score", "modules": []}'):
        (tmp_path / FILE).write_text(damage)
        with pytest.raises(UserError, match="measurements"):
            read_measurements(tmp_path)


def test_columns_of_wrong_length_or_module_are_refused(make_scores: MakeScores) -> None:
    with pytest.raises(ValueError, match="5 functions"):
        make_scores(policy=[1.0, 2.0])
    with pytest.raises(ValueError, match="other modules"):
        Measurements(SCORE, ("a",), ("p",), np.array([True]), {"baseline": np.ones(1)}, ("f",), np.array([1]))


def test_two_policies_are_compared_over_their_common_functions(make_scores: MakeScores) -> None:
    new = make_scores(policy=np.array([10, 100, 5, 25, 60]) - FLOOR)
    old = make_scores(policy=np.array([20, 100, 10, 50, 60]) - FLOOR)
    comparison = new.compare_policies(old).figures()
    assert isinstance(comparison, ScoreComparison)
    assert (comparison.modules, comparison.functions, comparison.functions_lower) == (3, 5, 3)
    assert comparison.reduction_percent == pytest.approx(100 * (1 - 0.125 ** (1 / 5)))
    fewer = Measurements(
        SCORE,
        old.modules[:1],
        old.projects[:1],
        old.unseen_project[:1],
        {"baseline": np.ones(2), "policy": np.array([20 - FLOOR, 1])},
        ("mix", "other"),
        np.zeros(2, np.int64),
    )
    assert new.compare_policies(fewer).figures().cases == 1


def test_function_of_a_module_that_only_one_evaluation_has_counts_in_another() -> None:
    """Its first copy is in a module that the other evaluation lacks."""
    names, functions, module = ("a.o", "b.o", "c.o"), ("inline", "inline", "f"), np.array([0, 1, 2])

    def make(policy: list[float]) -> Measurements:
        values = {"baseline": np.array([100.0, 100, 100]), "policy": np.array(policy)}
        return Measurements(SCORE, names, ("p",) * 3, np.zeros(3, bool), values, functions, module)

    new, old = make([50, 50, 100]), make([100, 100, 100])
    common = new.compare_policies(old, {"b.o", "c.o"}).other_modules()
    assert common is not None and common.units == 2
    assert common.reduction_percent == pytest.approx(100 * (1 - (51 / 101) ** (1 / 2)))


def test_module_regresses_by_the_geometric_mean_of_its_functions(make_scores: MakeScores) -> None:
    measured = make_scores(policy=np.array([10, 100, 12, 101, 60]) - FLOOR)
    assert measured.regressed_modules(1.0) == ("lz4/b.o",)
    assert measured.regressed_modules(0.1) == ("lz4/b.o", "snappy/<b>c.o")


def test_report_csv_has_a_row_per_case(scored: Measurements, measured: Measurements) -> None:
    """The columns are those of the demos' reports."""
    for values, unit, row in (
        (scored, "score", ["zstd/a.o", "calls", "99.0", "99.0"]),
        (measured, "bytes", ["zstd/b.o", "default", "3000", "3100"]),
    ):
        header, *rows = csv.reader(report_csv(values).splitlines())
        assert header == ["module_name", "identifier", f"heuristic_{unit}", f"policy_{unit}"]
        assert rows[1] == row
        assert [(module, name) for module, name, *_ in rows] == [(m, f or "default") for m, f in values.names()]
        assert [float(row[3]) for row in rows] == values.values["policy"].tolist()


def test_printed_table_has_figures_verdict_and_programs(
    tmp_path: Path, scored: Measurements, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = summarize_scores(scored, 0.5, programs(2000, 1990))
    metrics.policy_compiled_by = "training"
    (tmp_path / "metrics.json").write_text(encode_json(metrics))
    terminal_report.print_table(terminal_report.read_metrics(tmp_path), tmp_path)
    printed = capsys.readouterr().out
    for expected in (
        "24.21% lower ",
        "50.00% lower ",
        "2 / 2 / 1",
        "verdict: not shown, because",
        "projects: 24.21% lower scores, 95% interval",
        "50.00% lower scores, without an interval: 1 project",
        "all held-out (5)",
        "policy, compiled by the training clang",
        "snappy/bench",
        "0.50% fewer instructions",
        "left out: 1 modules",
        str(tmp_path / "report.html"),
    ):
        assert expected in printed
    text = terminal_report.markdown(metrics)
    assert "| snappy/bench | 2,000 | 1,990 | -0.50% | -11.11% | +0.00% |" in text
    assert "24.21% lower" in text


@pytest.mark.parametrize(
    ("required", "policy", "verdict"),
    [
        (0.1, 1001, "not better, because programs execute more instructions"),
        (0.1, 1000, "better"),
        (99, 1001, "not better"),
        (99, 900, "not better"),
    ],
)
def test_reports_say_if_programs_decided_the_verdict(
    tmp_path: Path, shown_scores: Measurements, required: float, policy: int, verdict: str
) -> None:
    metrics = summarize_scores(shown_scores, required, programs(1000, policy))
    assert terminal_report.footer_lines(metrics, tmp_path)[0].startswith(f"verdict: {verdict} (measured: 24.21% lower")
    assert terminal_report.markdown(metrics).startswith(f"Verdict: {verdict} (measured: 24.21% lower")


def test_metrics_without_functions_are_refused(tmp_path: Path, scored: Measurements) -> None:
    metrics = summarize_scores(scored, 0.5)
    (tmp_path / "metrics.json").write_text(
        json.dumps({k: v for k, v in msgspec.to_builtins(metrics).items() if k != "functions"})
    )
    with pytest.raises(UserError, match=r"metrics\.json"):
        terminal_report.read_metrics(tmp_path)


def test_every_problem_has_an_objective() -> None:
    assert {problems.get(name).objective for name in problems.names()} == set(OBJECTIVES)


class Cycles(Score):
    """A third objective; docs/CONTRIBUTING.md says what one needs."""

    name = "cycles"
    labels = replace(SCORE.labels, values_key="cycles")


class CyclesMetrics(ScoreMetrics, kw_only=True, tag="cycles"):
    measure: ClassVar[str] = Cycles.name


def test_another_objective_needs_only_its_class_and_its_type_of_metrics(
    scored: Measurements, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OBJECTIVES, Cycles.name, Cycles())
    monkeypatch.setitem(METRICS, Cycles.name, CyclesMetrics)
    measured = replace(scored, objective=OBJECTIVES[Cycles.name])
    metrics = summarize(measured, 0.5)
    (tmp_path / "metrics.json").write_text(encode_json(metrics))
    write_measurements(tmp_path, measured)
    read = terminal_report.read_metrics(tmp_path)
    assert isinstance(read, CyclesMetrics) and read == metrics
    assert terminal_report.objective_of(read) is measured.objective is read_measurements(tmp_path).objective
    assert terminal_report.table_rows(read) == terminal_report.table_rows(summarize_scores(scored, 0.5))


def test_keys_of_metrics_keep_their_order(scored: Measurements, measured: Measurements) -> None:
    """Files are compared as text, for example by whoever keeps them in version control."""
    keys_of = """
        measure modules {} other_modules other_projects of_unseen_projects warmstart reference against_warmstart
        against_reference {} verdict min_reduction_percent groups per_project excluded refused_because binaries programs
        {} inputs release_policy policy_compiled_by problem variants {}
    """.format
    scores = "functions reduction_percent functions_lower functions_equal functions_higher"
    sizes = "baseline_bytes policy_bytes reduction_percent modules_smaller modules_equal modules_larger"
    parts = "sweep best_threshold languages sections overlap functions_once"
    linked = "linked judged_by max_slowdown_percent"
    for values, expected in (
        (scored, keys_of(scores, "", "", "")),
        (measured, keys_of(sizes, parts, linked, "module_functions binary_functions")),
    ):
        keys = json.loads(encode_json(summarize(values, 0.5)))
        assert [key for key in keys if key != "compile_s"] == expected.split()
        assert list(keys["groups"]) == ["unseen_modules", "unseen_projects"]
