"""Tests that reports begin with linked programs and libraries, by project and by binary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from components.core.compiler.source_language import Language
from components.core.formats.corpus import load_corpus
from components.core.projects.flags.types import Kind, SectionSizes
from components.evaluation.measurements import Measurements
from components.evaluation.metrics import judge_whole_projects, summarize
from components.evaluation.metrics_types import (
    FULL_LTO,
    KeptObjects,
    OwnBuild,
    SizeMetrics,
    WholeProjects,
    decode_metrics,
    encode_json,
)
from components.evaluation.projects.linked_binaries import Binary, summarize_binaries
from components.evaluation.report import linked_tables, terminal_report
from components.evaluation.report.html_report import write_page
from components.evaluation.report.model_card import card_markdown, model_card
from components.evaluation.report.policy_choice import headline
from components.platform.launcher.executor import flatten_numbers, select_numbers
from pipelines.spec import COMPILED, load_spec


def _sizes(text: int) -> SectionSizes:
    return SectionSizes(text=text, eh_frame=100, total=text + 100, llvm_size_text=text + 100)


def _binary(project: str, name: str, kind: Kind, language: Language | None, stock: int, policy: int) -> Binary:
    return Binary(project, name, kind, language, "default", _sizes(stock), _sizes(policy))


def judged(measured: Measurements, binaries: list[Binary], own_build: OwnBuild | None = None) -> SizeMetrics:
    metrics = summarize(measured, 0.3, WholeProjects(summarize_binaries(binaries), own_build=own_build))
    assert isinstance(metrics, SizeMetrics)
    judge_whole_projects(metrics, None)
    return metrics


@pytest.fixture
def linked_metrics(shown: Measurements) -> SizeMetrics:
    binaries = [
        _binary("zstd", "bin/zstd", "program", "c", 900, 700),
        _binary("zstd", "bin/pzstd", "program", "c++", 1900, 1900),
        _binary("snappy", "libsnappy.a", "static library", None, 500, 400),
    ]
    return judged(shown, binaries)


def test_rows_by_project_and_by_binary(linked_metrics: SizeMetrics) -> None:
    (row,) = linked_tables.project_rows(linked_metrics.binaries)
    assert row[:4] == ["zstd: 2 programs", "default", "2,800 -6.67%", "2,600 -7.14%"]
    assert [row[0] for row in linked_tables.binary_rows(linked_metrics.binaries)] == ["zstd/bin/zstd", "zstd/bin/pzstd"]


def test_own_build_has_a_row_for_each_program_and_the_sum(measured: Measurements) -> None:
    kept = {"without bitcode": KeptObjects(7, [f"{i}.o" for i in range(7)])}
    left_out = {"x": "cannot find -ly"}
    own = OwnBuild(source="recorded", modules=3, kept_objects=7, kept=kept, as_built=24, left_out=left_out)
    metrics = judged(measured, [_binary("build", f"p{i}", "program", "c", 1000 + i, 900 + i) for i in range(25)], own)
    rows = linked_tables.own_rows(metrics.binaries)
    assert [row[0] for row in rows[:2]] == ["p24", "p23"] and [row[0] for row in rows[-2:]] == ["5 more", "all 25"]
    assert rows[0] == ["p24", "1,124", "1,024 -8.90%", "924 -9.77%", "100 +0.00%", "1,024 -8.90%"]
    stock, policy = (sum(start + i for i in range(25)) for start in (1100, 1000))
    assert rows[-1][1:3] == [f"{stock:,}", f"{policy:,} {100 * (policy / stock - 1):+.2f}%"]
    text = terminal_report.markdown(metrics)
    assert "| file | text (llvm-size), stock |" in text and "link variant" not in text
    assert "24 of 25" in text
    assert "7 objects" in text
    assert "-ly" in text
    assert (metrics.judged_by, metrics.verdict) == ("linked", "better")


def test_verdict_and_table_of_the_own_build_count_the_same(measured: Measurements) -> None:
    stock = SectionSizes(text=1000, dynstr=500, data=500, total=2000, llvm_size_text=1500)
    policy = SectionSizes(text=800, dynstr=500, data=500, total=1800, llvm_size_text=1300)
    program = Binary("build", "p", "program", "c", "default", stock, policy)
    metrics = judged(measured, [program], OwnBuild(source="ninja"))
    (_, total) = linked_tables.own_rows(metrics.binaries)
    assert total[linked_tables.OWN_COLUMNS.index("text (llvm-size), policy")] == "1,300 -13.33%"
    assert "13.33% smaller" in terminal_report.markdown(metrics)


def test_files_with_full_lto_have_a_sum_of_their_own_and_no_part_in_the_verdict(measured: Measurements) -> None:
    files = [_binary("build", "p", "program", "c", 1000, 990)]
    files.append(Binary("build", "q", "program", "c", FULL_LTO, _sizes(1000), _sizes(500)))
    own = OwnBuild(source="ninja", as_built=1, full_lto=1, two_linkers=1)
    metrics = judged(measured, files, own)
    titles = [row[0] for row in linked_tables.own_rows(metrics.binaries)]
    assert titles == ["p", "q (full LTO)", "all 1", "all 1 (full LTO)"]
    text = terminal_report.markdown(metrics)
    assert "0.91% smaller" in text
    assert "1 of 1" in text and "1 file" in text
    assert "GNU ld" in text
    metrics.linked.pop("default")
    metrics.verdict, metrics.judged_by = "not better", "linked"
    judge_whole_projects(metrics, None)
    assert metrics.judged_by == "modules"


def test_own_build_that_is_not_linked_says_what_it_needs(measured: Measurements, tmp_path: Path) -> None:
    metrics = judged(measured, [], OwnBuild(source="none", need="no link of the build is known"))
    assert (metrics.judged_by, metrics.linked) == ("modules", {})
    line = "the programs of your build are not linked: no link of the build is known"
    assert line in terminal_report.markdown(metrics) and line in terminal_report.footer_lines(metrics, tmp_path)
    write_page(tmp_path / "report.html", metrics, measured, None)
    assert "Not measured" in (tmp_path / "report.html").read_text()
    assert decode_metrics(encode_json(metrics).encode()) == metrics


def test_reports_begin_with_the_verdict_and_linked_files(
    linked_metrics: SizeMetrics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = terminal_report.markdown(linked_metrics)
    assert text.startswith("Verdict: better (")
    assert text.split("\n\n")[2].startswith("| project | link variant | text (llvm-size) | .text |")
    assert ".gcc_ex" not in text and ".gcc\\_ex…" in text
    assert "6.67% smaller" in text
    terminal_report.print_table(linked_metrics, tmp_path)
    for shown in (text, capsys.readouterr().out):
        assert shown.index("zstd: 2 programs") < shown.index("stock -Oz")


@pytest.mark.parametrize("task", ["evaluation", "release-report"])
def test_kfp_shows_a_dozen_headline_figures(linked_metrics: SizeMetrics, task: str) -> None:
    args = load_spec(COMPILED)["deploymentSpec"]["executors"][f"exec-{task}"]["container"]["args"]
    file, _colon, keys = args[args.index("--metrics") + 1].partition("=")[0].partition(":")
    document = msgspec.to_builtins(linked_metrics)
    shown = select_numbers(document, keys.split(","))
    assert file == terminal_report.METRICS and len(flatten_numbers(document)) > 30 and 8 <= len(shown) <= 14
    assert {"reduction_percent", "linked.default.all.reduction_percent"} <= shown.keys()


def test_summary_without_linked_files_begins_with_modules(measured: Measurements, shown: Measurements) -> None:
    text = terminal_report.markdown(summarize(shown, 0.3))
    assert text.startswith("Verdict: better (measured: 0.40% smaller on 4 held-out modules)\n\n")
    assert text.split("\n\n")[2].startswith("| | all held-out")
    assert terminal_report.markdown(summarize(measured, 0.3)).startswith("Verdict: not shown, because")


def test_headline_of_the_own_build_says_what_it_is_of_and_that_modules_disagree(
    make_measurements: Callable[..., Measurements],
) -> None:
    larger = make_measurements(policy=[1019, 3057, 408, 611])
    programs = [_binary("build", "p", "program", "c", 9900, 9600)]
    own, recipe = (headline(judged(larger, programs, build)) for build in (OwnBuild(source="recorded"), None))
    assert own.startswith("Better, your program") and own.index("3.00% smaller") < own.index("1.90% larger")
    assert recipe.startswith("Not better: 1.90% larger")


def test_model_card_begins_with_linked_files(linked_metrics: SizeMetrics, corpus_directory: Path, never: Path) -> None:
    card = model_card(linked_metrics, never, load_corpus(corpus_directory), [])
    text = card_markdown(card, [])
    assert "6.67% smaller" in text
    assert "0.3%" in text
    assert text.index("| zstd: 2 programs |") < text.index("| zstd/bin/zstd |") < text.index("## Held-out modules")
    assert text.index("## Held-out modules") < text.index("| project | modules |")
    assert "libsnappy.a" not in text
    assert card.gate.judged_by == "linked"


def test_model_card_without_linked_files_has_no_such_section(
    measured: Measurements, shown: Measurements, corpus_directory: Path, never: Path
) -> None:
    text = card_markdown(model_card(summarize(shown, 0.3), never, load_corpus(corpus_directory), []), [])
    assert "**better**: measured: held-out modules (4 modules) 0.40% smaller" in text and "inked" not in text
    text = card_markdown(model_card(summarize(measured, 0.3), never, load_corpus(corpus_directory), []), [])
    assert "not shown" in text
    assert "0.40% smaller" in text
