"""Compiled pipelines: KFP's PipelineSpec (api/v2alpha1/pipeline_spec.proto) in YAML, its parameters and images."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from components.core.formats.policy import IMAGE_VARIABLE
from components.platform.console.number_types import finite_float
from components.platform.errors import UserError
from components.platform.launcher.images import CLUSTER_VARIABLE, IMAGES
from components.platform.storage.input_files import MissingFile, expect_shape, parse_yaml, read_text
from pipelines.local.step import ON_KFP

_COMPILED = Path(__file__).parent / "compiled"
COMPILED_PIPELINES = {name: _COMPILED / f"{name}.yaml" for name in ("training", "sdk", "shrink", "smoke")}
"""This project's pipelines: one trains, one builds an LLVM SDK for it, one tries what works on a server."""
COMPILED = COMPILED_PIPELINES["training"]
REPORT_STEP = "release-report"
"""The step of the training pipeline that evaluates the release clang."""
_SDK_PIPELINE = "mlgo-sdk"
"""`pipelineInfo.name` of compiled/sdk.yaml."""


def load_spec(path: Path) -> dict[str, Any]:
    """Read the PipelineSpec in a YAML file. UserError if the file does not exist, or is not a compiled pipeline."""
    remedy = "compile one with mlgo pipeline compile --output FILE"
    try:
        text = read_text(path, remedy)
    except MissingFile:
        raise UserError(f"there is no pipeline at {path}", remedy) from None
    with expect_shape(path, "a compiled pipeline of KFP", remedy):
        document, *others = parse_yaml(text, str(path), remedy)
        for platforms in (other["platforms"] for other in others if other):
            if platforms:
                raise UserError(
                    f"{path} has settings for the platform {next(iter(platforms))}, which this program would lose",
                    "submit it with kfp's own client",
                )
        if document["schemaVersion"] and document["root"]["dag"]["tasks"]:
            return dict(document)
        raise ValueError("it has no task")


expect_pipeline = expect_shape(
    "the pipeline", "a compiled pipeline of KFP", "compile one with mlgo pipeline compile --output FILE"
)


def containers(spec: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the label of each executor of a PipelineSpec that is a container, and the container; not of importers."""
    for label, executor in spec["deploymentSpec"]["executors"].items():
        if "container" in executor:
            yield label, executor["container"]


def ray_image(container: Mapping[str, Any]) -> str | None:
    """Return the image of Ray's nodes that a container of a PipelineSpec knows, so that it may start a RayJob."""
    return next((entry["value"] for entry in container.get("env", ()) if entry["name"] == CLUSTER_VARIABLE), None)


def starts_ray_itself(spec: Mapping[str, Any]) -> bool:
    """Return whether a step may start a RayJob without being asked by a parameter `workers`."""
    root, deployment = spec.get("root") or {}, spec.get("deploymentSpec") or {}
    if "workers" in ((root.get("inputDefinitions") or {}).get("parameters") or {}) or not deployment.get("executors"):
        return False
    return any(ray_image(container) for _label, container in containers(spec))


@expect_pipeline
def with_images(spec: dict[str, Any], references: Mapping[str, str]) -> dict[str, Any]:
    """Return a copy of `spec` with image names replaced by `references`: name in the compiled pipeline -> digest.

    A step that starts containers itself gets their image in CLUSTER_VARIABLE; the variable is dropped if `references`
    does not have that image, unless an earlier call has set its digest.
    """
    copy: dict[str, Any] = json.loads(json.dumps(spec))
    for _label, container in containers(copy):
        container["image"] = references.get(container["image"], container["image"])
        environment = {entry["name"]: entry for entry in container.get("env", ()) if entry["name"] != IMAGE_VARIABLE}
        cluster = environment.pop(CLUSTER_VARIABLE, None)
        if cluster and (cluster["value"] in references or "@" in cluster["value"]):
            value = references.get(cluster["value"], cluster["value"])
            environment[CLUSTER_VARIABLE] = {**cluster, "value": value}
        environment[IMAGE_VARIABLE] = {"name": IMAGE_VARIABLE, "value": container["image"]}
        container["env"] = list(environment.values())
    return copy


@expect_pipeline
def used_images(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys of IMAGES that steps of a pipeline run in."""
    named = {container["image"] for _label, container in containers(spec)}
    return tuple(key for key, name in IMAGES.items() if name in named)


@expect_pipeline
def builds_sdk(spec: Mapping[str, Any]) -> bool:
    """Return whether a pipeline is this project's that builds an LLVM SDK."""
    return bool(spec.get("pipelineInfo", {}).get("name") == _SDK_PIPELINE)


@expect_pipeline
def parameter_values(spec: Mapping[str, Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the pipeline's parameters: those in `texts` (as text), defaults for the others.

    Raises:
        UserError: a parameter is unknown, has the wrong type, or has neither value nor default.
    """
    definitions = spec["root"].get("inputDefinitions", {}).get("parameters", {})
    unknown = sorted(set(texts) - set(definitions))
    if unknown:
        near = get_close_matches(unknown[0], definitions, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        has = f"{meant}it has {', '.join(sorted(definitions))}"
        raise UserError(f"the pipeline has no parameter {unknown[0]!r}", has)
    values = {}
    for name, definition in definitions.items():
        if name in texts:
            values[name] = _typed(name, texts[name], definition["parameterType"])
        elif definition.get("defaultValue") is not None:
            values[name] = definition["defaultValue"]
        else:
            raise UserError(f"the pipeline's parameter {name} has no value", f"pass --param {name}=VALUE")
    return values


def _typed(name: str, text: str, kind: str) -> Any:
    readers: dict[str, Callable[[str], Any]] = {
        "STRING": str,
        "NUMBER_INTEGER": int,
        "NUMBER_DOUBLE": finite_float,
        "BOOLEAN": _boolean,
    }
    try:
        return readers[kind](text)
    except KeyError:
        raise UserError(f"the parameter {name} has the unsupported type {kind}", ON_KFP) from None
    except ValueError:
        kinds = {"NUMBER_INTEGER": "a whole number", "NUMBER_DOUBLE": "a finite number", "BOOLEAN": "true or false"}
        problem = f"the parameter {name} is {text!r}, but must be {kinds[kind]}"
        raise UserError(problem, f"pass --param {name}=VALUE") from None


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"
