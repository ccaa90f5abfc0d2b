"""The compiled pipeline in the repository is what pipelines/training.py compiles to, in kfp's own environment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pipelines.spec import COMPILED, load_spec

ROOT = Path(__file__).parents[2]
ENVIRONMENT = Path(sys.prefix).with_name(f"{Path(sys.prefix).name}-pipelines")


@pytest.mark.slow
def test_the_golden_is_what_compiling_gives(tmp_path: Path) -> None:
    assert (ENVIRONMENT / "bin" / "python").is_file(), "make setup-pipelines"
    command = [sys.executable, "-m", "pipelines", "pipeline", "compile", "--output", str(tmp_path / "p.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    made = (tmp_path / "p.yaml").read_text()
    assert made == COMPILED.read_text(), "make pipeline, and commit what it writes"


def test_without_kfp_the_remedy_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-m", "pipelines", "pipeline", "compile", "--output", str(tmp_path / "p.yaml")]
    environment = {"MLGO_PIPELINES_PYTHON": str(tmp_path / "nowhere"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=300)
    assert done.returncode == 1 and "make setup-pipelines" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "p.yaml").exists()


def tasks() -> dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Of the compiled pipeline: name -> task, its component and its container, whatever DAG it is in."""
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
def test_each_step_has_requests_limits_retries_and_a_time_out(name: str) -> None:
    task, _component, container = TASKS[name]
    assert len(TASKS) == 11
    resources = container["resources"]
    for kind in ("Cpu", "Memory"):
        assert 0 < resources[f"{kind.lower()}Request"] <= resources[f"{kind.lower()}Limit"]
        assert resources[f"resource{kind}Request"] and resources[f"resource{kind}Limit"]
    retry = task["retryPolicy"]
    assert retry["maxRetryCount"] >= 1 and retry["backoffFactor"] > 1 and retry["backoffDuration"] == "60s"
    if name != "finish":  # whose only request has one
        assert int(container["args"][container["args"].index("--time-limit-s") + 1]) > 0


@pytest.mark.parametrize("name", TASKS)
def test_a_step_is_cached_only_if_its_parameters_say_all_that_it_depends_on(name: str) -> None:
    """What a path or a URI holds may change though its name does not; and to tell somebody is not a result."""
    task, component, _container = TASKS[name]
    given = set(component.get("inputDefinitions", {}).get("parameters", {}))
    sound = not given & {"recipe", "existing", "compile_commands", "emphasize", "with_policy", "start_from", "status"}
    assert task["cachingOptions"].get("enableCache", False) is sound
