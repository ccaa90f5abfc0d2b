"""Tests that the final table agrees with metrics.json."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec import structs

from components.evaluation.measurements import Measurements
from components.evaluation.metrics import summarize
from components.evaluation.metrics_types import Inputs, SizeMetrics, encode_json
from components.evaluation.overlap import Overlap
from components.evaluation.report import terminal_report
from components.evaluation.report.model_card import parts_table, reductions
from components.platform.errors import UserError


def test_rows_name_variants_and_groups(measured: Measurements) -> None:
    metrics = summarize(measured, 0.5)
    rows = terminal_report.value_rows(metrics)
    assert [title for title, _ in rows] == [
        "stock -Oz",
        "-Oz, best -inline-threshold (15)",
        "warmstart policy",
        "policy, compiled by the release clang",
    ]
    assert [cell[0] for cell in rows[-1][1]] == [4980, 4380, 600]


def test_row_and_note_of_another_policy(measured: Measurements, tmp_path: Path) -> None:
    values = {**measured.values, "reference": measured.values["policy"] - 10}
    metrics = summarize(replace(measured, values=values), 0.5)
    metrics.inputs = Inputs(reference="pretrained", reference_trained_on=["known"])
    cells = dict(terminal_report.value_rows(metrics))["unchanged pretrained policy"]
    assert [cell[0] for cell in cells] == [4940, 4350, 590]
    for part in ("modules of known", "another corpus"):
        (note,) = (line for line in terminal_report.footer_lines(metrics, tmp_path) if part in line)
        assert f"- {note}" in terminal_report.markdown(metrics)
    metrics.inputs.reference_knows_corpus = True
    assert "this corpus" in terminal_report.markdown(metrics)


def test_table_has_rows_of_languages_and_sections(measured: Measurements) -> None:
    metrics = summarize(measured, 0.5)
    rows = dict(terminal_report.table_rows(metrics))
    assert rows["policy, C modules"] == ["4,380  0.45% smaller", "4,380  0.45% smaller", "–"]
    assert rows["policy, .gcc_except_table"] == ["–", "–", "–"]
    assert list(rows)[-4:] == ["policy, .text", "policy, .rodata", "policy, .eh_frame", "policy, .gcc_except_table"]
    # Evaluations of an earlier version have none.
    assert isinstance(metrics, SizeMetrics)
    earlier = structs.replace(metrics, languages={}, sections={})
    assert len(terminal_report.value_rows(metrics)) == len(terminal_report.table_rows(earlier))


def test_functions_that_training_compiled_have_a_row_and_a_note(measured: Measurements, tmp_path: Path) -> None:
    known, bodies, baseline = np.array([100, 900, 0, 0]), np.array([200, 900, 100, 0]), np.array([900, 1100, 400, 600])
    overlap = Overlap(known + baseline, known, bodies, baseline - 50)
    metrics = summarize(replace(measured, overlap=overlap), 0.5)
    row = dict(terminal_report.table_rows(metrics))["policy, functions that training did not compile"]
    assert row == ["2,800  6.67% smaller", "2,250  6.25% smaller", "550  8.33% smaller"]
    (note,) = (line for line in terminal_report.footer_lines(metrics, tmp_path) if line.startswith("25%"))
    assert "(30% by" in note and note.endswith("6.67% smaller") and f"- {note}" in terminal_report.markdown(metrics)


def test_functions_that_count_once_have_a_row_and_estimates(measured: Measurements, tmp_path: Path) -> None:
    none = np.zeros(4, np.int64)
    overlap = Overlap(none, none, none, none, np.array([100, 500, 0, 0]), np.array([0, 1100, 0, 0]))
    metrics = summarize(replace(measured, overlap=overlap), 0.5)
    row = dict(terminal_report.table_rows(metrics))["policy, each function once in its project"]
    assert row == ["3,880  11.82% smaller", "3,280  13.68% smaller", "600  same"]
    lines = terminal_report.footer_lines(metrics, tmp_path)
    (once,) = (line for line in lines if "modules of these projects, each function once: 11.82% smaller, 95%" in line)
    assert f"- {once}" in terminal_report.markdown(metrics)
    earlier = summarize(replace(measured, overlap=Overlap(none, none, none, none)), 0.5)
    assert not any("function once" in line for line in terminal_report.footer_lines(earlier, tmp_path))


def test_model_card_has_rows_of_languages_and_sections(measured: Measurements) -> None:
    metrics = summarize(measured, 0.5)
    languages = reductions(metrics, "languages")
    assert languages["c++"] == {"all held-out": 0.0, "unseen_modules": None, "unseen_projects": 0.0}
    lines = parts_table(languages, reductions(metrics, "sections"))
    assert "| C modules | 0.45% smaller | 0.45% smaller | – |" in lines and "| C++ modules | same | – | same |" in lines
    assert parts_table({}, {}) == []


def test_printed_table_has_figures_verdict_and_paths(
    tmp_path: Path, measured: Measurements, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = summarize(measured, 0.5)
    metrics.inputs = Inputs(release_clang="/opt/release/bin/clang", policy="/p")
    (tmp_path / "metrics.json").write_text(encode_json(metrics))
    terminal_report.print_table(terminal_report.read_metrics(tmp_path), tmp_path)
    printed = capsys.readouterr().out
    for expected in (
        "4,980",
        "5,010",
        "0.40% smaller",
        "verdict: not better (measured: 0.40% smaller",
        "projects: 0.40% smaller, 95% interval",
        "/opt/release/bin/clang",
        str(tmp_path / "report.html"),
        "left out: 1 modules",
    ):
        assert expected in printed


def test_metrics_of_the_first_version_are_readable(
    tmp_path: Path, measured: Measurements, capsys: pytest.CaptureFixture[str]
) -> None:
    document = msgspec.to_builtins(summarize(measured, 0.5))
    newer = {"measure", "refused_because", "binaries", "programs", "linked", "judged_by", "max_slowdown_percent"}
    newer |= {"inputs", "release_policy", "policy_compiled_by", "problem", "variants"}
    for figures in (document, *document["groups"].values()):
        for name in ("languages", "sections", "against_warmstart", "against_reference"):
            del figures[name]
    first_version = {key: value for key, value in document.items() if key not in newer}
    (tmp_path / "metrics.json").write_text(json.dumps(first_version))
    metrics = terminal_report.read_metrics(tmp_path)
    terminal_report.print_table(metrics, tmp_path)
    assert "4,980" in capsys.readouterr().out
    assert isinstance(metrics, SizeMetrics) and metrics.groups.unseen_modules.languages == {}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"modules": "4"}, "modules"),
        ({"verdict": "good"}, "verdict"),
        ({"groups": {}}, "unseen_modules"),
        ({"best_threshold": 7}, "best_threshold is not in the sweep"),
        ({"measure": "speed"}, "measure"),
    ],
)
def test_damaged_metrics_are_refused(
    tmp_path: Path, measured: Measurements, damage: dict[str, object], message: str
) -> None:
    document = msgspec.to_builtins(summarize(measured, 0.5)) | damage
    (tmp_path / "metrics.json").write_text(json.dumps(document))
    with pytest.raises(UserError, match=message) as caught:
        terminal_report.read_metrics(tmp_path)
    assert str(tmp_path / "metrics.json") in caught.value.problem and caught.value.remedy == "evaluate again"
    for content in ("", "[]", "{}", '{"modules": 1}'):
        (tmp_path / "metrics.json").write_text(content)
        with pytest.raises(UserError, match=r"is not (the metrics\.json|valid JSON)"):
            terminal_report.read_metrics(tmp_path)


def test_import_loads_no_heavy_modules() -> None:
    script = (
        "import sys, components.evaluation.report.terminal_report\n"
        "heavy = {'numpy', 'matplotlib', 'jinja2', 'pyarrow', 'tensorflow'} & set(sys.modules)\n"
        "sys.exit(f'imports {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
