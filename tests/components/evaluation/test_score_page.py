"""report.html of scores: self-contained, escaped, verdict first."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.evaluation.curve import Curve, Series
from components.evaluation.page import write_page
from components.evaluation.plots import MOST_POINTS
from components.evaluation.score_measurements import ScoreMeasurements
from components.evaluation.score_metrics import summarize_scores
from components.evaluation.score_page import worst_functions
from components.problems.scores import FLOOR
from tests.components.evaluation.test_page import Balanced
from tests.components.evaluation.test_scores import programs


def render(
    path: Path, measured: ScoreMeasurements, curve: Curve | None = None, run: dict[str, Any] | None = None
) -> str:
    metrics = summarize_scores(measured, 0.3, 1, run) | {
        "policy_compiled_by": "training", "problem": "regalloc",
        "variants": [{"name": "baseline", "clang": "/opt/clang", "flags": "none"}],
        "inputs": {"corpus": "/c", "policy": "/p", "llvm_version": "19.1.7", "release_clang": None},
    }  # fmt: skip
    write_page(path / "report.html", metrics, measured, curve)
    return (path / "report.html").read_text()


def words(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page.split("<body>")[1]).split())


def test_well_formed_and_loads_nothing(tmp_path: Path, scored: ScoreMeasurements) -> None:
    line = Series(np.array([0.0, 1.0]), np.array([0.0, 0.01]))
    page = render(tmp_path, scored, Curve(line, "mean", validation=line), programs(100, 99))
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert "script" not in parser.tags
    assert all(reference.startswith("#") for reference in parser.references)
    assert page.count("<svg") == 3


def test_verdict_and_figures_come_first(tmp_path: Path, scored: ScoreMeasurements) -> None:
    text = words(render(tmp_path, scored))
    order = ["Policy for regalloc", "Better: 24.21% lower scores", "5 functions in 3 held-out modules",
             "the training clang logs", "2 / 2 / 1", "Per function", "Per project"]  # fmt: skip
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)
    assert "-Oz" not in text and "bytes" not in text
    assert "Not measured: no release clang" in text and "no TensorBoard events" in text


def test_programs_that_got_slower_stand_beside_the_verdict(tmp_path: Path, scored: ScoreMeasurements) -> None:
    text = words(render(tmp_path, scored, run=programs(1000, 1100)))
    assert "Not better, for programs execute more instructions: 24.21% lower scores" in text
    assert text.index("10.00% more instructions") < text.index("Scores of the held-out functions")
    assert "snappy/bench 1,000 1,100 +10.00% -11.11% +0.00%" in text


def test_names_and_compiler_output_are_escaped(tmp_path: Path, make_scores: Callable[..., ScoreMeasurements]) -> None:
    page = render(tmp_path, make_scores(policy=[1, 1, 1, 1000, 1]))
    assert "<script>" not in page
    assert "_ZN&lt;script&gt;$x_{$E<small>snappy/&lt;b&gt;c.o" in page
    assert "60 s &lt;b&gt;" in page


def test_worst_functions_are_those_that_rose_most(make_scores: Callable[..., ScoreMeasurements]) -> None:
    measured = make_scores(policy=np.array([40, 101, 30, 100, 59]) - FLOOR)
    worst = worst_functions(measured)
    assert [(found.module, found.name) for found in worst] == [
        ("lz4/b.o", "mix"), ("zstd/a.o", "mix"), ("zstd/a.o", "calls"),
    ]  # fmt: skip
    assert worst[0].growth_percent == pytest.approx(200) and worst[0].baseline_score == 10 - FLOOR
    assert worst_functions(measured, 1) == worst[:1]


def test_copies_of_an_inline_function_are_named_once() -> None:
    copies = ScoreMeasurements(
        ("a.o", "b.o"), ("p", "p"), np.zeros(2, bool), ("f", "f"), np.array([0, 1]),
        {"baseline": np.array([1.0, 1.0]), "policy": np.array([2.0, 2.0])},
    )  # fmt: skip
    assert [(found.module, found.name) for found in worst_functions(copies)] == [("a.o", "f")]


def test_many_functions_make_no_huge_page(tmp_path: Path) -> None:
    count = 20 * MOST_POINTS
    generator = np.random.default_rng(0)
    before = generator.lognormal(4, 3, count)
    many = ScoreMeasurements(
        tuple(f"p/{i}.o" for i in range(100)), ("p",) * 100, np.zeros(100, bool),
        tuple(f"f{i}" for i in range(count)), np.sort(generator.integers(0, 100, count)),
        {"baseline": before, "policy": before * generator.lognormal(0, 0.1, count)},
    )  # fmt: skip
    page = render(tmp_path, many)
    assert len(page) < 2_000_000
    assert "every k-th" in page and "40,000 functions" in page


def test_no_function_at_all_still_makes_a_page(tmp_path: Path) -> None:
    none = ScoreMeasurements(
        ("a/leaf.o",), ("a",), np.array([True]), (), np.zeros(0, np.int64),
        {"baseline": np.zeros(0), "policy": np.zeros(0)},
    )  # fmt: skip
    text = words(render(tmp_path, none))
    assert "Not better: –" in text and "No function has a higher score" in text


def test_same_figures_same_bytes(tmp_path: Path, scored: ScoreMeasurements) -> None:
    assert render(tmp_path, scored) == render(tmp_path, scored)
