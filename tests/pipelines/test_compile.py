"""Tests that the compiled pipeline in the repository is up to date, and of properties of its tasks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from pipelines.spec import COMPILED, load_spec
from pipelines.validation import _KINDS

ROOT = Path(__file__).parents[2]
ENVIRONMENT = Path(sys.prefix).with_name(f"{Path(sys.prefix).name}-pipelines")


def test_compiled_pipeline_is_up_to_date(tmp_path: Path) -> None:
    assert (ENVIRONMENT / "bin" / "python").is_file(), "make setup-pipelines"
    command = [sys.executable, "-m", "pipelines", "pipeline", "compile", "--output", str(tmp_path / "p.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    made = (tmp_path / "p.yaml").read_text()
    assert made == COMPILED.read_text(), "run make pipeline, and commit what it writes"


def test_missing_kfp_is_reported_with_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-m", "pipelines", "pipeline", "compile", "--output", str(tmp_path / "p.yaml")]
    environment = {"MLGO_PIPELINES_PYTHON": str(tmp_path / "nowhere"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300)
    assert done.returncode == 1 and "make setup-pipelines" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "p.yaml").exists()


def test_description_of_parameter_names_every_choice() -> None:
    parameters = load_spec(COMPILED)["root"]["inputDefinitions"]["parameters"]
    choices = {name: kind.choices for name, (kind, _example) in _KINDS.items() if isinstance(kind, click.Choice)}
    assert {"preset", "problem", "features"} <= set(choices)
    for name, known in choices.items():
        assert all(f"`{choice}`" in parameters[name]["description"] for choice in known), name
    assert all(parameter["description"].endswith(".") for parameter in parameters.values())


def tasks() -> dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Return the tasks of all DAGs of the compiled pipeline: name -> (task, component, container)."""
    spec = load_spec(COMPILED)
    components = spec["components"]
    dags = [spec["root"]["dag"], *(component["dag"] for component in components.values() if "dag" in component)]
    found = {name: task for dag in dags for name, task in dag["tasks"].items()}
    made = {name: (task, components[task["componentRef"]["name"]]) for name, task in found.items()}
    executors = spec["deploymentSpec"]["executors"]
    return {
        name: (task, component, executors[component["executorLabel"]]["container"])
        for name, (task, component) in made.items()
        if "dag" not in component
    }


TASKS = tasks()


@pytest.mark.parametrize("name", TASKS)
def test_each_task_has_requests_limits_retries_and_timeout(name: str) -> None:
    task, _component, container = TASKS[name]
    assert len(TASKS) == 13
    resources = container["resources"]
    for kind in ("Cpu", "Memory"):
        assert 0 < resources[f"{kind.lower()}Request"] <= resources[f"{kind.lower()}Limit"]
        assert resources[f"resource{kind}Request"] and resources[f"resource{kind}Limit"]
    retry = task["retryPolicy"]
    assert retry["maxRetryCount"] >= 1 and retry["backoffFactor"] > 1 and retry["backoffDuration"] == "60s"
    if name != "finish":  # whose only request has one
        assert int(container["args"][container["args"].index("--time-limit-s") + 1]) > 0


@pytest.mark.parametrize("name", TASKS)
def test_task_is_cached_only_if_parameters_determine_result(name: str) -> None:
    """The content behind a path or URI may change while its name stays, and a notification is not a result."""
    task, component, _container = TASKS[name]
    given = set(component.get("inputDefinitions", {}).get("parameters", {}))
    sound = not given & {
        "recipe",
        "existing",
        "compile_commands",
        "oversample_modules",
        "extra_policy",
        "start_from",
        "retrain_state",
        "state",
        "status",
    }
    assert task["cachingOptions"].get("enableCache", False) is sound
