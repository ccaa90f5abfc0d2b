"""Tests of a step's cost: its line, its metadata, and the tables that the launcher makes possible."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from components.platform.launcher.step_cost import (
    COLUMNS,
    COSTS,
    StepCost,
    cost_in_metadata,
    costs_so_far,
    find_cost,
    is_cost_line,
    table_rows,
)
from tests.support import bitcode as whole

ROOT = Path(__file__).parents[4]
COST = StepCost(120.3, 8, 812.4, 1_843_000_000, 120_500_000, 3_200_000)


@pytest.mark.parametrize("cost", [COST, StepCost(0.0, 1, 0.0, 0), StepCost(1e6, 224, 1e8, 10**12, 10**13, 10**13)])
@pytest.mark.parametrize("before", ["", "2026-11-27T12:34:56.789Z INFO ", "[ppo] "])
def test_line_of_a_log_has_the_cost(cost: StepCost, before: str) -> None:
    line = f"{before}{cost.line()}"
    assert is_cost_line(line) and find_cost(["cost: high", line, "end"]) == cost


def test_last_line_of_a_log_counts() -> None:
    assert find_cost([StepCost(1.0, 1, 1.0, 0).line(), COST.line()]) == COST
    assert find_cost(["no cost"]) is None and not is_cost_line("cost: much")


def test_metadata_has_the_cost_as_numbers() -> None:
    assert cost_in_metadata({"digest": "d", **{key: float(value) for key, value in COST.metadata().items()}}) == COST


@pytest.mark.parametrize("metadata", [None, {}, {"cost.seconds": 3}, {**COST.metadata(), "cost.seconds": "x"}, []])
def test_other_metadata_has_no_cost(metadata: Any) -> None:
    assert cost_in_metadata(metadata) is None


def test_table_has_the_sum_of_steps_and_their_largest_memory() -> None:
    rows = table_rows({"ppo": COST, "vocab": StepCost(10.0, 1, 5.0, 10**9)})
    assert all(len(row) == len(COLUMNS) for row in rows)
    assert rows[0] == ["ppo", "120.3", "812.4", "6.8 of 8", "1843.0 MB", "120.5 MB", "3.2 MB"]
    assert rows[-1] == ["all", "130.3", "817.4", "0.23 core hours", "1843.0 MB", "120.5 MB", "3.2 MB"]
    assert len(table_rows({"ppo": COST})) == 1 and table_rows({}) == []


def test_step_without_a_launcher_knows_no_costs() -> None:
    assert costs_so_far() == {}


def launch(tmp_path: Path, task: str, earlier: dict[str, Any], *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the step `corpus` as KFP does, whose output is tmp_path/TASK; what it reports is tmp_path/TASK.json."""
    outputs = {"artifacts": {task: {"artifacts": [{"name": task, "uri": str(tmp_path / task)}]}}}
    read = {name: {"artifacts": [{"name": name, "uri": f"/{name}", "metadata": m}]} for name, m in earlier.items()}
    kfp = {"inputs": {"artifacts": read}, "outputs": {**outputs, "outputFile": str(tmp_path / f"{task}.json")}}
    command = [sys.executable, "-m", "components.platform.launcher", "--executor-input", json.dumps(kfp)]
    command += ["--task", task, "--metrics", "report.json=metrics", "corpus", *map(str, arguments)]
    command += ["--output", str(tmp_path / task)]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=os.environ, timeout=120)


@pytest.fixture
def made(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "bitcode").mkdir()
    (tmp_path / "bitcode" / "a.bc").write_bytes(whole.bitcode(b"a"))
    return ("make", "--input", str(tmp_path / "bitcode"), "--default-args=-cc1", "--heldout-project", "")


def test_artifact_has_the_costs_of_its_step_and_of_those_before(tmp_path: Path, made: tuple[str, ...]) -> None:
    before = {"training": {COSTS: json.dumps({"toolchain": COST.figures(), "older": COST.figures()})}}
    before["damaged"] = {COSTS: "{"}
    before["other"] = {COSTS: json.dumps({"x": 3})}
    done = launch(tmp_path, "first", before, *made)
    assert done.returncode == 0, done.stderr
    cost = find_cost(done.stdout.splitlines())
    assert cost is not None and cost.processor_seconds > 0 and cost.peak_memory_bytes > 10**7 and cost.seconds > 0
    metadata = json.loads((tmp_path / "first.json").read_text())["artifacts"]["first"]["artifacts"][0]["metadata"]
    assert cost_in_metadata(metadata) is not None and metadata["digest"]
    costs = json.loads(metadata[COSTS])
    assert set(costs) == {"toolchain", "older", "first"} and costs["older"] == COST.figures()
    done = launch(tmp_path, "second", {"first": metadata}, "import", "--input", tmp_path / "first")
    assert done.returncode == 0, done.stderr
    metadata = json.loads((tmp_path / "second.json").read_text())["artifacts"]["second"]["artifacts"][0]["metadata"]
    assert set(json.loads(metadata[COSTS])) == {"toolchain", "older", "first", "second"}


def test_failed_step_has_a_cost_in_its_log_only(tmp_path: Path) -> None:
    done = launch(tmp_path, "failed", {}, "make", "--input", tmp_path / "none")
    assert done.returncode == 1 and find_cost(done.stdout.splitlines()) is not None
    assert done.stderr.startswith("error: ") and not (tmp_path / "failed.json").exists()
