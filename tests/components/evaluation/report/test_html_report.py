"""Tests that report.html is self-contained and escaped, with the verdict first."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from components.core.formats.training_curve import Curve, Series
from components.core.projects.flags.types import SectionSizes
from components.evaluation.measurements import Measurements
from components.evaluation.metrics import summarize
from components.evaluation.metrics_types import (
    BinariesComparison,
    BinaryEntry,
    CompiledBy,
    FunctionChange,
    FunctionDecision,
    Inputs,
    LinkedTotal,
    VariantDescription,
    WholeProjects,
    encode_json,
)
from components.evaluation.report import terminal_report
from components.evaluation.report.html_report import write_page
from components.evaluation.report.regressions import worst_cases
from components.platform.launcher.step_cost import StepCost

SECTIONS = SectionSizes(
    text=900, rodata=50, eh_frame=30, gcc_except_table=10, dynstr=1, data=8, other=1, total=1000, llvm_size_text=990
)
VOID = {"meta", "br", "link", "img", "hr", "input"}


def render(
    path: Path,
    measured: Measurements,
    curve: Curve | None = None,
    binaries: BinariesComparison | None = None,
    policy_compiled_by: CompiledBy = "release",
    required_percent: float = 0.3,
) -> str:
    metrics = summarize(measured, required_percent, WholeProjects(binaries or BinariesComparison()))
    metrics.policy_compiled_by = policy_compiled_by
    metrics.variants = [VariantDescription("baseline", "/opt/clang", "none")]
    metrics.inputs = Inputs(corpus="/c", policy="/p", llvm_version="19.1.7", release_clang="/r")
    write_page(path / "report.html", metrics, measured, curve)
    return (path / "report.html").read_text()


class Balanced(HTMLParser):
    """Checks that every element is closed in order, and collects references to external resources."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.references: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.references += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "data")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def require_well_formed(page: str) -> None:
    """Fail unless a page has balanced elements, and loads nothing."""
    parser = Balanced()
    parser.feed(page)
    assert parser.open == []
    assert "script" not in parser.tags
    assert all(reference.startswith("#") for reference in parser.references)
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def visible_text(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page.split("<body>")[1]).split())


def test_well_formed_and_loads_nothing(tmp_path: Path, shown: Measurements) -> None:
    line = Series(np.array([0.0, 1.0]), np.array([0.0, 0.01]))
    curve = Curve(line, line, line, line)
    binary = BinaryEntry(
        project="snappy",
        name="libsnappy.so",
        kind="shared library",
        stock=SECTIONS,
        policy=replace(SECTIONS, text=880),
        reduction_percent=1.0,
    )
    total = LinkedTotal(
        files=1, stock=binary.stock, policy=binary.policy, reduction_percent=2.5, text_reduction_percent=-1.0
    )
    page = render(tmp_path, shown, curve, BinariesComparison([binary], {"default": {"all": total}}))
    assert "2.50% smaller" in page and "0.40% smaller" in page
    assert page.index("Linked binaries") < page.index("Text size of the held-out modules")
    require_well_formed(page)
    assert page.count("<svg") == 4


def test_verdict_and_figures_are_first(tmp_path: Path, shown: Measurements) -> None:
    text = visible_text(render(tmp_path, shown))
    assert text.index("Better: 0.40% smaller") < text.index("4,980") < text.index("Per module")
    assert "clang itself" in text


def test_page_says_that_a_gain_is_not_shown_and_for_what_each_figure_is(tmp_path: Path, measured: Measurements) -> None:
    text = visible_text(render(tmp_path, measured))
    order = [
        "Not shown: 0.40% smaller",
        "Measured: 5,000 → 4,980 bytes",
        "projects: 0.40% smaller, 95% interval",
        "from 4 modules. Estimate",
        "same, without an interval: 1 project",
        "at least 0.3% smaller",
        "gains only",
    ]
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)


def test_page_says_which_growth_is_accepted(tmp_path: Path, shown: Measurements) -> None:
    text = visible_text(render(tmp_path, shown, required_percent=-1))
    assert "1% larger" in text
    assert "gains only" not in text


def test_page_has_languages_sections_and_the_reason_of_the_verdict(
    tmp_path: Path, make_measurements: Callable[..., Measurements]
) -> None:
    measured = make_measurements(policy=[900, 3100, 380, 601])
    page = render(tmp_path, replace(measured, languages=("c++", "c++", "other", "c")))
    for expected in (
        "policy, C modules",
        "policy, C++ modules",
        "modules of other languages",
        "policy, .eh_frame",
        "Not better: C modules of unseen projects are 0.17% larger; the limit is 0.1%",
    ):
        assert expected in page


def test_page_marks_figures_of_the_training_clang(tmp_path: Path, measured: Measurements) -> None:
    assert "no release clang was given" in render(tmp_path, measured, policy_compiled_by="training")


def test_names_and_compiler_output_are_escaped(tmp_path: Path, make_measurements: Callable[..., Measurements]) -> None:
    measured = make_measurements(policy=[1000, 3000, 400, 700])
    page = render(tmp_path, measured)
    assert "<script>" not in page
    assert "snappy/&lt;script&gt;alert(1)&lt;/script&gt;$x_{$.o" in page
    assert "zstd/broken.o" in page and "60 s &lt;b&gt;" in page


def test_project_names_in_plots_are_escaped(tmp_path: Path, measured: Measurements) -> None:
    unescaped = replace(measured, projects=('a<b>&"$x_{$', *measured.projects[1:]), sections={})
    page = render(tmp_path, unescaped)
    assert "a<b>" not in page
    assert "a&lt;b&gt;&amp;" in page


def test_worst_modules_grew_most(make_measurements: Callable[..., Measurements]) -> None:
    measured = make_measurements(baseline=[1000, 3000, 400, 0], policy=[1010, 3300, 399, 4])
    worst = worst_cases(measured, 2)
    assert [module.name for module in worst] == [measured.modules[3], "zstd/b.o"]
    assert worst[1].growth_percent == pytest.approx(10.0)
    assert [module.name for module in worst_cases(measured)] == [*(m.name for m in worst), "zstd/a.o"]


def test_page_is_deterministic(tmp_path: Path, measured: Measurements) -> None:
    assert render(tmp_path, measured) == render(tmp_path, measured)


def test_page_with_an_empty_group_and_missing_parts(
    tmp_path: Path, make_measurements: Callable[..., Measurements]
) -> None:
    variants = ("baseline", "policy", "warmstart", "inline_threshold_5", "inline_threshold_15")
    page = render(tmp_path, make_measurements(**{name: [1000, 3000, 400, 0] for name in variants}))
    assert "No module" in page
    assert "no TensorBoard events" not in page and "Training reward" not in page
    assert "no recipe" in page


def test_functions_have_their_whole_name_as_a_title_and_their_decisions(tmp_path: Path, measured: Measurements) -> None:
    name = f"std::map<{'std::string, ' * 12}int>::find(Key const&) const"
    decision = FunctionDecision(caller=name, callee="<b>()", inlines=True, saved_bytes=-7, function_bytes=50)
    metrics = summarize(measured, 0.3)
    metrics.module_functions = [
        FunctionChange(binary="zstd/a.o", function=name, old=60, new=90, symbol="_Z", decisions=[decision]),
        FunctionChange(binary="zstd/b.o", function="gone()", old=40, new=0, symbol="_Y"),
    ]
    metrics.inputs = Inputs(corpus="/c", policy="/p", training_clang="/t/bin/clang")
    write_page(tmp_path / "report.html", metrics, measured, None)
    page = (tmp_path / "report.html").read_text()
    require_well_formed(page)
    assert "grew most" in page and "shrank most" in page
    assert f'title="{html.escape(name)}">std::map&lt;…&gt;::find(…) const<' in page
    assert "&lt;b&gt;() inlined" in page and "<b>()" not in page
    assert "policy explain" in page
    assert "Functions of linked binaries" not in page
    (tmp_path / "metrics.json").write_text(encode_json(metrics))
    assert terminal_report.read_metrics(tmp_path) == metrics


def test_page_has_no_column_twice_and_no_list_of_zero_modules(
    tmp_path: Path, make_measurements: Callable[..., Measurements]
) -> None:
    measured = make_measurements(policy=[1000, 3000, 400, 600])
    known = replace(measured, unseen_project=np.zeros(4, bool))
    page = render(tmp_path, known)
    assert "<th>all held-out<br>4 modules</th></tr>" in page and "unseen projects<br>" not in page
    assert "The 0 worst" not in page and "No module" in page
    assert "unseen projects<br>1 module</th>" in render(tmp_path, measured)


def test_page_has_what_the_run_cost_if_that_is_known(tmp_path: Path, measured: Measurements) -> None:
    assert "What the run cost" not in render(tmp_path, measured)
    metrics = summarize(measured, 0.3)
    metrics.inputs = Inputs(corpus="/c", policy="/p", training_clang="/t/bin/clang")
    costs = {"ppo": StepCost(120.3, 8, 812.4, 10**9, 10**8), "<vocab>": StepCost(1.0, 1, 1.0, 10**6)}
    write_page(tmp_path / "report.html", metrics, measured, None, costs)
    page = (tmp_path / "report.html").read_text()
    require_well_formed(page)
    table = page.partition("What the run cost")[2].partition("</table>")[0]
    assert table.count("<tr>") == 4 and "<td>812.4</td>" in table and "&lt;vocab&gt;" in table
    assert "<td>0.23 core hours</td>" in table and "<th>memory at most</th>" in table
