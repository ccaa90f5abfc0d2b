"""Tests that report.csv has the columns of the inlining demo's report."""

from __future__ import annotations

import csv
from pathlib import Path

from components.evaluation.measurements import Measurements, write_report_csv


def test_report_csv_has_four_columns_and_a_row_per_module(tmp_path: Path, measured: Measurements) -> None:
    write_report_csv(tmp_path / "report.csv", measured)
    with open(tmp_path / "report.csv", newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["module_name", "identifier", "heuristic_bytes", "policy_bytes"]
    assert rows[1] == ["zstd/b.o", "default", "3000", "3100"]
    assert [row[0] for row in rows] == list(measured.modules)
