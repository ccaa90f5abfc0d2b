"""Tests of the component files: complete, usable in pipelines of others, and with the defaults of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.core.formats.policy import IMAGE_VARIABLE
from components.platform.launcher.images import COMMAND
from components.platform.launcher.registry import TASKS
from components.trace import __main__ as trace_step
from pipelines.spec import COMPILED_PIPELINES, containers, load_spec
from tests.pipelines.test_compile import ENVIRONMENT, ROOT

DIGEST = f"sha256:{'1' * 64}"
IMAGE = {
    key: f"{key}=r.example.com/mlgo-{key}@{DIGEST}" for key in ("toolchain", "training", "sdk", "clang", "cluster")
}
IMAGES = ",".join(reference for key, reference in IMAGE.items() if key != "cluster")
EXAMPLES = ROOT / "docs" / "examples" / "components"
RUN_TASKS = {"finish", "promote", "record-refusal"}
"""Tasks about a whole run of this project's pipeline."""


@pytest.fixture(scope="module")
def components(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("components")
    command = [sys.executable, "-m", "pipelines", "pipeline", "components", "--images", IMAGES, "--output", str(output)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)
    return output


def compile_example(name: str, components: Path, output: Path) -> dict[str, Any]:
    """Compile docs/examples/components/NAME.py where nothing of this project can be imported."""
    command: list[str | Path] = [ENVIRONMENT / "bin" / "python", EXAMPLES / f"{name}.py"]
    subprocess.run([*command, components, "own.example.com/image", output], cwd=output.parent, check=True, timeout=300)
    return load_spec(output)


def test_every_step_is_a_component(components: Path) -> None:
    tasks = {
        spec["components"][component]["executorLabel"].removeprefix("exec-")
        for spec in (load_spec(COMPILED_PIPELINES[name]) for name in ("training", "sdk", "shrink"))
        for component in spec["components"]
        if "executorLabel" in spec["components"][component]
    }
    assert {path.name for path in components.iterdir()} == tasks - RUN_TASKS


def test_trace_in_a_pipeline_of_others(components: Path, tmp_path: Path) -> None:
    spec = compile_example("trace_pipeline", components, tmp_path / "trace.yaml")
    commands = {label: container for label, container in containers(spec)}
    assert {container["image"] for container in commands.values()} == {
        f"r.example.com/mlgo-toolchain@{DIGEST}",
        f"r.example.com/mlgo-training@{DIGEST}",
        "own.example.com/image",
    }
    traced = next(container for container in commands.values() if "mlgo-training@" in container["image"])
    assert traced["command"] == ["env", f"{IMAGE_VARIABLE}=r.example.com/mlgo-training@{DIGEST}", *COMMAND]
    defaults = spec["components"]["comp-trace"]["inputDefinitions"]["parameters"]
    assert {name: one["defaultValue"] for name, one in defaults.items()} == {"problem": "inlining", "workers": "local"}
    options = {option for command in trace_step.main.params for option in command.opts}
    assert {word for word in traced["args"] if word.startswith("--")} - options == {
        "--executor-input",
        "--task",
        "--time-limit-s",
        "--metrics",
    }


def test_shrink_in_a_pipeline_of_others(components: Path, tmp_path: Path) -> None:
    spec = compile_example("shrink_pipeline", components, tmp_path / "shrink.yaml")
    inputs = spec["components"]["comp-shrink"]["inputDefinitions"]["parameters"]
    assert [name for name, one in inputs.items() if not one.get("isOptional")] == ["source"]


def test_metadata_names_image_inputs_outputs_and_resources(components: Path) -> None:
    metadata = yaml.safe_load((components / "warmstart" / "metadata.yaml").read_text())
    assert metadata["image"] == f"r.example.com/mlgo-training@{DIGEST}"
    assert metadata["inputs"]["vocab"] == "system.Artifact" and metadata["outputs"]["warmstart"] == "system.Model"
    assert metadata["inputs"]["preset"] == "STRING, default 'demo'"
    assert metadata["resources"]["memory_gb"] == TASKS["warmstart"].memory_gb
    assert metadata["stability"] == "beta"


def test_steps_without_a_pushed_image_are_left_out_and_none_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipelines", "pipeline", "components", "--output", str(tmp_path / "c")]
    subprocess.run([*command, "--images", IMAGE["clang"]], cwd=ROOT, check=True, timeout=300)
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["shrink"]
    done = subprocess.run(
        [*command, "--images", IMAGE["cluster"]], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1 and "the image toolchain has no digest" in done.stderr
