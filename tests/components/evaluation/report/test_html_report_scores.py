"""Tests that report.html of scores is self-contained and escaped, with the verdict first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from components.core.formats.training_curve import Curve, Series
from components.core.objectives import SCORE
from components.core.objectives.geometric_mean import FLOOR
from components.evaluation.measurements import Measurements
from components.evaluation.metrics import summarize
from components.evaluation.metrics_types import (
    BenchmarkSummary,
    BinariesComparison,
    Inputs,
    VariantDescription,
    WholeProjects,
)
from components.evaluation.report.html_report import write_page
from components.evaluation.report.plots import MAX_POINTS
from components.evaluation.report.regressions import worst_cases
from tests.components.evaluation.report.test_html_report import require_well_formed, visible_text
from tests.components.evaluation.test_score_metrics import programs


def render(path: Path, measured: Measurements, curve: Curve | None = None, run: BenchmarkSummary | None = None) -> str:
    metrics = summarize(measured, 0.3, WholeProjects(BinariesComparison(), run))
    metrics.policy_compiled_by, metrics.problem = "training", "regalloc"
    metrics.variants = [VariantDescription("baseline", "/opt/clang", "none")]
    metrics.inputs = Inputs(corpus="/c", policy="/p", llvm_version="19.1.7")
    write_page(path / "report.html", metrics, measured, curve)
    return (path / "report.html").read_text()


def test_well_formed_and_loads_nothing(tmp_path: Path, scored: Measurements) -> None:
    line = Series(np.array([0.0, 1.0]), np.array([0.0, 0.01]))
    page = render(tmp_path, scored, Curve(line, line, line, line), programs(100, 99))
    require_well_formed(page)
    assert page.count("<svg") == 3


def test_verdict_and_figures_are_first(tmp_path: Path, scored: Measurements, shown_scores: Measurements) -> None:
    assert "24.21% lower" in visible_text(render(tmp_path, shown_scores))
    text = visible_text(render(tmp_path, scored))
    order = [
        "Policy for regalloc",
        "Not shown: 24.21% lower",
        "over 5 functions",
        "projects: 24.21% lower scores, 95% interval",
        "the training clang logs",
        "2 / 2 / 1",
        "Per function",
        "Per project",
    ]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert "-Oz" not in text and "bytes" not in text
    assert "Not measured" in text and "no TensorBoard events" in text


def test_slower_programs_are_next_to_the_verdict(tmp_path: Path, scored: Measurements) -> None:
    text = visible_text(render(tmp_path, scored, run=programs(1000, 1100)))
    assert "more instructions" in text
    assert text.index("10.00% more instructions") < text.index("Scores of the held-out functions")
    assert "snappy/bench 1,000 1,100 +10.00% -11.11% +0.00%" in text


def test_names_and_compiler_output_are_escaped(tmp_path: Path, make_scores: Callable[..., Measurements]) -> None:
    page = render(tmp_path, make_scores(policy=[1, 1, 1, 1000, 1]))
    assert "<script>" not in page
    name = "_ZN&lt;script&gt;$x_{$E"
    assert f'title="{name}">{name}</span><small>snappy/&lt;b&gt;c.o' in page
    assert "60 s &lt;b&gt;" in page


def test_worst_functions_have_the_largest_increase(make_scores: Callable[..., Measurements]) -> None:
    measured = make_scores(policy=np.array([40, 101, 30, 100, 59]) - FLOOR)
    worst = worst_cases(measured)
    assert [(case.module, case.name) for case in worst] == [
        ("lz4/b.o", "mix"),
        ("zstd/a.o", "mix"),
        ("zstd/a.o", "calls"),
    ]
    assert worst[0].growth_percent == pytest.approx(200) and worst[0].baseline == 10 - FLOOR
    assert worst_cases(measured, 1) == worst[:1]


def test_copies_of_an_inline_function_are_listed_once() -> None:
    values = {"baseline": np.array([1.0, 1.0]), "policy": np.array([2.0, 2.0])}
    module = np.array([0, 1])
    copies = Measurements(SCORE, ("a.o", "b.o"), ("p", "p"), np.zeros(2, bool), values, ("f", "f"), module)
    assert [(case.module, case.name) for case in worst_cases(copies)] == [("a.o", "f")]


def test_page_size_is_limited_with_many_functions(tmp_path: Path) -> None:
    count = 20 * MAX_POINTS
    generator = np.random.default_rng(0)
    before = generator.lognormal(4, 3, count)
    many = Measurements(
        SCORE,
        tuple(f"p/{i}.o" for i in range(100)),
        ("p",) * 100,
        np.zeros(100, bool),
        functions=tuple(f"f{i}" for i in range(count)),
        module=np.sort(generator.integers(0, 100, count)),
        values={"baseline": before, "policy": before * generator.lognormal(0, 0.1, count)},
    )
    page = render(tmp_path, many)
    assert len(page) < 2_000_000
    assert "every k-th" in page and "40,000 functions" in page
