"""Tests of reading compiled pipelines: ours, and those that this runner does not support."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.platform.errors import UserError
from components.platform.launcher.images import CLUSTER, CLUSTER_VARIABLE, IMAGES
from pipelines.local.ir import steps_of
from pipelines.parameters.check import checked_values
from pipelines.spec import COMPILED, COMPILED_PIPELINES, load_spec, parameter_values, used_images, with_images


@pytest.fixture
def spec() -> dict[str, Any]:
    return load_spec(COMPILED)


def steps(spec: dict[str, Any], **parameters: str) -> dict[str, Any]:
    return {step.name: step for step in steps_of(spec, parameter_values(spec, parameters))}


def test_parameters_reach_the_steps_as_text(spec: dict[str, Any]) -> None:
    by_name = steps(spec, seed="7", min_reduction_percent="1.25", problem="regalloc")
    arguments = by_name["ppo"].arguments
    assert arguments[arguments.index("--seed") + 1] == "7"
    assert arguments[arguments.index("--problem") + 1] == "regalloc"
    arguments = by_name["evaluation"].arguments
    assert arguments[arguments.index("--min-reduction-percent") + 1] == "1.25"
    arguments = by_name["toolchain-training"].arguments
    assert arguments[arguments.index("--llvm-major") + 1] == "19", "a default, in YAML 19.0"


def test_exit_handler_always_runs_and_is_told_the_run(spec: dict[str, Any]) -> None:
    *_others, last = steps(spec).values()
    assert last.name == "finish" and last.always and "--run-id" in last.arguments


def test_inputs_of_nested_tasks_are_resolved(spec: dict[str, Any]) -> None:
    by_name = steps(spec)
    assert by_name["release-report"].inputs["release"] == "release" == by_name["toolchain-release"].output
    assert set(by_name["release-report"].after) >= {"evaluation", "toolchain-release"}


@pytest.mark.parametrize(("default", "named"), [(None, "llvm_major has no value"), ([19], "--param llvm_major")])
def test_invalid_defaults_are_refused(spec: dict[str, Any], default: object, named: str) -> None:
    changed = copy.deepcopy(spec)
    changed["root"]["inputDefinitions"]["parameters"]["llvm_major"]["defaultValue"] = default
    with pytest.raises(UserError, match=named):
        checked_values(changed, {"recipe": "demo"})


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"sed": "1"}, "no parameter 'sed'"),
        ({"seed": "one"}, "seed is 'one', but must be a whole number"),
        ({"llvm_major": "1.5"}, "llvm_major is '1.5', but must be a whole number"),
    ],
)
def test_invalid_parameters_are_refused(spec: dict[str, Any], parameters: dict[str, str], named: str) -> None:
    with pytest.raises(UserError, match=named) as raised:
        parameter_values(spec, parameters)
    assert raised.value.remedy


def test_parameter_without_default_is_required(spec: dict[str, Any]) -> None:
    del spec["root"]["inputDefinitions"]["parameters"]["seed"]["defaultValue"]
    with pytest.raises(UserError, match="parameter seed has no value"):
        parameter_values(spec, {})


def test_image_names_are_replaced_by_digests(spec: dict[str, Any]) -> None:
    before = copy.deepcopy(spec)
    changed = with_images(spec, {IMAGES["training"]: "r/training@sha256:1"})
    images = {name: e["container"]["image"] for name, e in changed["deploymentSpec"]["executors"].items()}
    assert images["exec-ppo"] == "r/training@sha256:1" and images["exec-corpus"] == IMAGES["toolchain"]
    assert spec == before


def test_pipeline_of_another_shape_is_refused() -> None:
    container: dict[str, Any] = {"image": "mlgo-training", "env": [{"name": "MLGO_CLUSTER_IMAGE"}]}
    for broken in ({}, {"deploymentSpec": {"executors": {"exec-ppo": {"container": container}}}}):
        with pytest.raises(UserError, match="a compiled pipeline of KFP"):
            with_images(broken, {"mlgo-cluster": "r/c@sha256:1", "mlgo-training": "r/t@sha256:1"})


def test_images_of_a_pipeline_are_those_of_its_steps(spec: dict[str, Any]) -> None:
    assert used_images(spec) == ("toolchain", "training")
    assert used_images(load_spec(COMPILED_PIPELINES["sdk"])) == ("toolchain", "sdk")
    spec["deploymentSpec"]["executors"] = {"exec-other": {"container": {"image": "python:3.11"}}}
    assert used_images(spec) == ()


def test_ppo_step_gets_image_of_ray_nodes_if_it_is_built(spec: dict[str, Any]) -> None:
    def environment(references: dict[str, str]) -> dict[str, str]:
        container = with_images(spec, references)["deploymentSpec"]["executors"]["exec-ppo"]["container"]
        return {variable["name"]: variable["value"] for variable in container["env"]}

    assert CLUSTER_VARIABLE not in environment({IMAGES["training"]: "r/training@sha256:1"})
    assert environment({IMAGES[CLUSTER]: "r/cluster@sha256:2"})[CLUSTER_VARIABLE] == "r/cluster@sha256:2"
    # A file that `pipeline compile --images` wrote, and `submit --pipeline FILE` reads.
    compiled = with_images(spec, {IMAGES["training"]: "r/training@sha256:1", IMAGES[CLUSTER]: "r/cluster@sha256:2"})
    assert with_images(compiled, {}) == compiled


def test_duplicate_artifact_names_are_refused(spec: dict[str, Any]) -> None:
    outputs = spec["components"]["comp-vocab"]["outputDefinitions"]["artifacts"]
    outputs["trace"] = outputs.pop("vocab")
    with pytest.raises(UserError, match="two tasks of the pipeline write an artifact named 'trace'"):
        steps(spec)


@pytest.mark.parametrize("condition", ["1 == 1", "inputs.parameter_values['x'] > '3'", "a || b"])
def test_unsupported_conditions_are_refused(spec: dict[str, Any], condition: str) -> None:
    tasks = spec["components"]["comp-release-and-promote"]["dag"]["tasks"]
    tasks["condition-1"]["triggerPolicy"]["condition"] = condition
    with pytest.raises(UserError, match="unsupported condition") as raised:
        steps(spec)
    assert "KFP" in raised.value.remedy


@pytest.mark.parametrize("operator", ["==", "!="])
@pytest.mark.parametrize("negated", [False, True])
def test_conditions_are_parsed(spec: dict[str, Any], operator: str, negated: bool) -> None:
    term = f"inputs.parameter_values['pipelinechannel--release_policy'] {operator} 'start'"
    tasks = spec["components"]["comp-release-and-promote"]["dag"]["tasks"]
    tasks["condition-1"]["triggerPolicy"]["condition"] = f"!({term})" if negated else term
    (condition,) = steps(spec)["release-report"].conditions
    assert condition.holds("start") is ((operator == "==") is not negated)
    assert condition.holds("none") is not condition.holds("start")


@pytest.mark.parametrize("text", ["", "{", "a: b", "[]", "schemaVersion: 2.1.0\nroot: {}\n"])
def test_file_that_is_not_a_pipeline_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(UserError, match=r"p\.yaml is not (a compiled pipeline|valid YAML)"):
        load_spec(tmp_path / "p.yaml")
    with pytest.raises(UserError, match="there is no pipeline at"):
        load_spec(tmp_path / "q.yaml")


def test_empty_platform_document_is_ignored(tmp_path: Path, spec: dict[str, Any]) -> None:
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(spec) + "---\nplatforms: {}\n")
    assert load_spec(tmp_path / "p.yaml") == spec


@pytest.mark.parametrize("broken", ["component", "executor", "producer", "artifact"])
def test_inconsistent_spec_is_refused(spec: dict[str, Any], broken: str) -> None:
    tasks = spec["components"]["comp-exit-handler-1"]["dag"]["tasks"]
    if broken == "component":
        del spec["components"]["comp-vocab"]
    elif broken == "executor":
        spec["components"]["comp-vocab"]["executorLabel"] = "exec-none"
    else:
        artifact = tasks["vocab"]["inputs"]["artifacts"]["trace"]["taskOutputArtifact"]
        artifact["producerTask" if broken == "producer" else "outputArtifactKey"] = "nothing"
    with pytest.raises(UserError, match="the task vocab"):
        steps(spec)
