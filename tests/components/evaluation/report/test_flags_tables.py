"""Tests that reports show programs under rows of flags where they were measured, and say so where not."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from components.core.projects.flags.compare import flags_totals
from components.core.projects.flags.types import (
    FlagRowEntry,
    FlagsComparison,
    FlagsProgram,
    FlagsProject,
    RowResult,
    RowSizes,
)
from components.evaluation.measurements import Measurements
from components.evaluation.metrics import summarize
from components.evaluation.metrics_types import (
    BinariesComparison,
    SizeMetrics,
    WholeProjects,
    decode_metrics,
    encode_json,
)
from components.evaluation.report import flags_tables, terminal_report
from components.evaluation.report.html_report import write_page

ICF = FlagRowEntry(
    name="icf-all", gives="folding", compile_flags=["-Oz"], link_flags=["-Wl,--icf=all"], assumes=["no <addresses>"]
)
DEFAULT = FlagRowEntry(name="default", gives="nothing", compile_flags=["-Oz"], link_flags=[], assumes=[])


@pytest.fixture
def compared() -> FlagsComparison:
    stock = RowResult(row="icf-all", compiler="stock", sizes=RowSizes(stripped=2000, text=1000))
    policy = RowResult(row="icf-all", compiler="policy", sizes=RowSizes(stripped=1900, text=1010))
    failed = RowResult(row="default", compiler="policy", failure="error: <b>undefined</b>")
    plain = RowResult(row="default", compiler="stock", sizes=RowSizes(stripped=2500, text=1200))
    program = FlagsProgram(
        project="zstd",
        name="bin/zstd",
        language="c",
        results=[plain, failed, stock, policy],
        best_stock=stock,
        best=policy,
    )
    project = FlagsProject(project="zstd", row="icf-all", compiler="policy", build="CC=clang", assumes=ICF.assumes)
    return FlagsComparison([DEFAULT, ICF], [program], [project], flags_totals([program]))


@pytest.fixture
def metrics(measured: Measurements, compared: FlagsComparison) -> SizeMetrics:
    summarized = summarize(measured, 0.3, WholeProjects(BinariesComparison(), flags=compared))
    assert isinstance(summarized, SizeMetrics)
    return summarized


def test_rows_name_bytes_changes_and_failures(compared: FlagsComparison) -> None:
    default, icf = flags_tables.row_rows(compared, compared.programs[0])
    assert default == ["default", "nothing", "2,500 (1,200) +25.00%", "failed: error: <b>undefined</b>"]
    assert icf == ["icf-all *", "folding", "2,000 (1,000) +0.00%", "1,900 (1,010) -5.00% ←"]
    assert len(flags_tables.row_columns(compared)) == len(icf)
    assert flags_tables.program_rows(compared) == [
        ["zstd/bin/zstd", "C", "icf-all", "2,000", "1,000", "icf-all, release clang", "1,900 -5.00%", "1,010 +1.00%"]
    ]
    assert flags_tables.assumption_lines(compared) == ["* icf-all: no <addresses>"]


def test_sums_of_compilers_leave_out_what_one_of_them_does_not_build(compared: FlagsComparison) -> None:
    gcc = RowResult(row="gcc-Oz", compiler="gcc", sizes=RowSizes(stripped=1800))
    (first,) = compared.programs
    failed = RowResult(row="gcc-Oz", compiler="gcc", failure="error: no such option")
    compared.programs = [
        replace(first, results=[*first.results, gcc]),
        replace(first, name="bin/other", results=[*first.results, failed]),
    ]
    assert flags_tables.compiler_lines(compared) == [
        "C (1 of 2), best rows in bytes: stock clang 2,000 +0.00% (0 smallest), "
        "release clang 1,900 -5.00% (0 smallest), gcc 1,800 -10.00% (1 smallest)"
    ]


def test_metrics_keep_the_rows(metrics: SizeMetrics, measured: Measurements, compared: FlagsComparison) -> None:
    read = decode_metrics(encode_json(metrics).encode())
    assert isinstance(read, SizeMetrics) and read.flags == compared
    assert '"flags"' not in encode_json(summarize(measured, 0.3))


def test_reports_show_the_rows(
    tmp_path: Path, metrics: SizeMetrics, measured: Measurements, capsys: pytest.CaptureFixture[str]
) -> None:
    text = terminal_report.markdown(metrics)
    assert "| zstd/bin/zstd | C | icf-all |" in text.replace("\\", "")
    assert "5.00% smaller" in text
    write_page(tmp_path / "report.html", metrics, measured, None)
    page = (tmp_path / "report.html").read_text()
    assert "row icf-all" in page
    assert "&lt;b&gt;undefined&lt;/b&gt;" in page and "no &lt;addresses&gt;" in page
    terminal_report.print_table(metrics, tmp_path)
    printed = capsys.readouterr().out
    assert "zstd/bin/zstd" in printed
    assert "the build" in printed


def test_reports_say_where_nothing_was_measured(tmp_path: Path, measured: Measurements) -> None:
    metrics = summarize(measured, 0.3)
    write_page(tmp_path / "report.html", metrics, measured, None)
    assert "--flag-rows" in (tmp_path / "report.html").read_text()
    assert "best stock row" not in terminal_report.markdown(metrics)
