"""Tests of pipelines compiled by KFP: supported constructs run as meant, others are refused before anything runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from components.platform.errors import UserError
from pipelines.local.ir import steps_of
from pipelines.local.step import Condition, Step
from pipelines.spec import load_spec, parameter_values

KFP_PYTHON = Path(sys.prefix).with_name(f"{Path(sys.prefix).name}-pipelines") / "bin" / "python"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compiled")
    command = [KFP_PYTHON, Path(__file__).with_name("kfp_pipelines.py"), folder]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    return folder


def steps(path: Path) -> dict[str, Step]:
    spec: dict[str, Any] = load_spec(path)
    return {step.name: step for step in steps_of(spec, parameter_values(spec, {}))}


UNSUPPORTED = {
    "loop": r"the task for-loop-\d is a loop \(dsl.ParallelFor\)",
    "loop_over_a_parameter": r"the task for-loop-\d is a loop",
    "collected": "the task collect reads a list of artifacts",
    "imported": "the task importer is not a container but has the executor importer",
    "one_of": r"the task read reads an output of condition-branches-\d, which is a nested pipeline",
    "passed_on": "the task tell takes the output value of make as a parameter",
    "greater_than": r"the task condition-\d has an unsupported condition",
    "python_function": "the task function is a Python function",
    "optional_argument": "the task maybe has an argument that depends on which inputs are present",
    "parameter_in_a_command": "the task in-command has a placeholder in its command",
    "of_metadata": r"the task metadata has the placeholder \{\{\$.inputs.artifacts\['made'\].metadata",
    "environment": "the task tell sets the environment variable A",
    "name_of_the_job": r"the task tell uses the unsupported placeholder \{\{\$.pipeline_job_name\}\}",
    "failures_ignored": "the task tell ignores failures of other tasks",
    "output_of_a_pipeline": "the task read reads an output of inner, which is a nested pipeline",
    "same_name_within": "two tasks of the pipeline are named 'make'",
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported_constructs_are_refused(compiled: Path, name: str) -> None:
    with pytest.raises(UserError, match=UNSUPPORTED[name]) as raised:
        steps(compiled / f"{name}.yaml")
    assert raised.value.remedy


def test_refused_pipeline_runs_no_step(compiled: Path, tmp_path: Path) -> None:
    command = ["pipeline", "run", "--pipeline", str(compiled / "passed_on.yaml"), "--output", str(tmp_path / "run")]
    done = subprocess.run([sys.executable, "-m", "pipelines", *command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "the task tell takes" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_nested_conditions_are_combined(compiled: Path) -> None:
    by_name = steps(compiled / "nested_conditions.yaml")
    outer, within = Condition("make", "value", "1"), Condition("make", "value", "3", equal=False)
    assert (by_name["other"].conditions, by_name["read"].conditions) == ((outer,), (outer, within))
    assert by_name["read"].inputs == {"made": "another"}


@pytest.mark.parametrize(("parameters", "runs"), [({}, {"tell"}), ({"x": "1"}, {"tell"}), ({"x": "2"}, {"other"})])
def test_condition_on_parameter_is_decided_before_the_run(
    compiled: Path, parameters: dict[str, str], runs: set[str]
) -> None:
    spec: dict[str, Any] = load_spec(compiled / "on_a_parameter.yaml")
    selected = steps_of(spec, parameter_values(spec, parameters))
    assert {step.name for step in selected} == runs and not any(step.conditions for step in selected)


def test_dependency_on_pipeline_is_dependency_on_its_steps(compiled: Path) -> None:
    assert steps(compiled / "after_a_pipeline.yaml")["tell"].after == ("make",)


def test_platform_settings_are_refused(compiled: Path, tmp_path: Path) -> None:
    text = (compiled / "nested_conditions.yaml").read_text() + "---\nplatforms: {kubernetes: {deploymentSpec: {}}}\n"
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(UserError, match="settings for the platform kubernetes"):
        load_spec(tmp_path / "p.yaml")
