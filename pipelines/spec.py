"""Reads a compiled pipeline: KFP's PipelineSpec (api/v2alpha1/pipeline_spec.proto), YAML, into the steps of a run.

What our pipeline uses of it is understood: tasks with containers, nested DAGs (dsl.If and dsl.ExitHandler make those),
parameters that are constants or the pipeline's, artifacts, conditions on an output parameter. Anything else is an error
that names it; such a pipeline wants KFP.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from components.console import UserError
from components.formats.policy import IMAGE_VARIABLE
from components.launcher.images import CLUSTER_VARIABLE
from pipelines.step import FILES, Condition, Step

COMPILED = Path(__file__).parent / "compiled" / "training.yaml"
STATUS = "{{status}}"
"""Stands in a step that always runs for KFP's PipelineTaskFinalStatus."""

_ON_KFP = "submit it to KFP, which runs every pipeline"
_PARAMETER = re.compile(r"\{\{\$\.inputs\.parameters\['([^']+)'\]\}\}")
_TERM = re.compile(r"^(!)?\(?inputs\.parameter_values\['([^']+)'\] (==|!=) '([^']*)'\)?$")


@dataclass(frozen=True)
class _Made:
    """A value that a task makes. key: of its output parameter or artifact."""

    task: str
    key: str


@dataclass(frozen=True)
class _Status:
    """KFP's PipelineTaskFinalStatus."""


def load_spec(path: Path) -> dict[str, Any]:
    """The PipelineSpec in a YAML file. UserError if it is none."""
    try:
        document = next(iter(yaml.safe_load_all(path.read_text(encoding="utf-8"))))
        if document["schemaVersion"] and document["root"]["dag"]["tasks"]:
            return dict(document)
    except FileNotFoundError:
        raise UserError(f"there is no pipeline at {path}", "mlgo pipeline compile --output FILE makes one") from None
    except (yaml.YAMLError, KeyError, TypeError, StopIteration):
        pass
    raise UserError(f"{path} is not a compiled pipeline of KFP", "mlgo pipeline compile --output FILE makes one")


def with_images(spec: dict[str, Any], references: Mapping[str, str]) -> dict[str, Any]:
    """A copy of `spec` that names images by `references`: name in the compiled pipeline -> digest.

    A step that starts containers itself is told their image by CLUSTER_VARIABLE, or not at all if it is not among them.
    """
    copy: dict[str, Any] = json.loads(json.dumps(spec))
    for executor in copy["deploymentSpec"]["executors"].values():
        container = executor["container"]
        container["image"] = references.get(container["image"], container["image"])
        told = [entry for entry in container.get("env", ()) if entry["name"] != CLUSTER_VARIABLE]
        for entry in container.get("env", ()):
            if entry["name"] == CLUSTER_VARIABLE and entry["value"] in references:
                told.append({**entry, "value": references[entry["value"]]})
        container["env"] = [*told, {"name": IMAGE_VARIABLE, "value": container["image"]}]
    return copy


def parameter_values(spec: Mapping[str, Any], given: Mapping[str, str]) -> dict[str, Any]:
    """The pipeline's parameters: `given` (as text), the defaults for the others.

    Raises:
        UserError: there is no such parameter, it is of another kind, or one without a default is not given.
    """
    definitions = spec["root"].get("inputDefinitions", {}).get("parameters", {})
    unknown = sorted(set(given) - set(definitions))
    if unknown:
        raise UserError(
            f"the pipeline has no parameter {unknown[0]!r}", f"it has {', '.join(sorted(definitions))}"
        )
    values = {}
    for name, definition in definitions.items():
        if name in given:
            values[name] = _typed(name, given[name], definition["parameterType"])
        elif "defaultValue" in definition:
            values[name] = definition["defaultValue"]
        else:
            raise UserError(f"the pipeline's parameter {name} is not given", f"--param {name}=VALUE")
    return values


def steps_of(spec: Mapping[str, Any], parameters: Mapping[str, Any]) -> tuple[Step, ...]:
    """The steps of the pipeline with these parameters, those that `always` run last."""
    steps = tuple(_flatten(spec, spec["root"]["dag"], {k: v for k, v in parameters.items()}, {}, (), ()))
    outputs = [step.output for step in steps if step.output]
    twice = sorted({name for name in outputs if outputs.count(name) > 1})
    if twice:
        problem = f"two tasks of the pipeline make an artifact named {twice[0]!r}"
        raise UserError(problem, "rename one in its component.py")
    return tuple(sorted(steps, key=lambda step: step.always))


def _flatten(
    spec: Mapping[str, Any],
    dag: Mapping[str, Any],
    parameters: Mapping[str, Any],
    artifacts: Mapping[str, _Made],
    conditions: tuple[Condition, ...],
    after: tuple[str, ...],
) -> Iterator[Step]:
    """The steps of a DAG and of those nested in it. parameters, artifacts: its inputs, resolved."""
    tasks = dag["tasks"]
    for name, task in tasks.items():
        component = spec["components"][task["componentRef"]["name"]]
        inputs = task.get("inputs", {})
        values = {
            key: _parameter(source, parameters, name)
            for key, source in _with_defaults(component, inputs.get("parameters", {})).items()
        }
        read = {key: _artifact(source, artifacts, name) for key, source in inputs.get("artifacts", {}).items()}
        policy = task.get("triggerPolicy", {})
        always = policy.get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED"
        held = conditions + _conditions(policy.get("condition", ""), values, name)
        waits = after + tuple(t for t in task.get("dependentTasks", ()) if "dag" not in _component(spec, tasks, t))
        if "dag" in component:
            yield from _flatten(spec, component["dag"], values, read, held, waits)
        else:
            executor = spec["deploymentSpec"]["executors"][component["executorLabel"]]
            yield _step(name, component, executor, values, read, held, waits, always)


def _step(
    name: str,
    component: Mapping[str, Any],
    executor: Mapping[str, Any],
    values: Mapping[str, Any],
    read: Mapping[str, _Made],
    conditions: tuple[Condition, ...],
    after: tuple[str, ...],
    always: bool,
) -> Step:
    if "container" not in executor:
        raise UserError(f"the task {name} is no container", _ON_KFP)
    container = executor["container"]
    arguments = [_PARAMETER.sub(lambda m: _text(values[m[1]]), text) for text in container.get("args", ())]
    definitions = component.get("outputDefinitions", {})
    outputs = {key: value["artifactType"]["schemaTitle"] for key, value in definitions.get("artifacts", {}).items()}
    work = _option(arguments, "--work")
    made = [key for key, title in outputs.items() if title not in FILES and key != work]
    if len(made) > 1:
        raise UserError(f"the task {name} makes {len(made)} artifacts", "one a task is what this runner understands")
    step = next((a for a in arguments if (Path(__file__).parents[1] / "components" / a / "__main__.py").is_file()), "")
    return Step(
        name=name,
        image=container["image"],
        module=f"components.{step}" if step else "components.launcher",
        command=tuple(container.get("command", ())),
        arguments=tuple(arguments),
        output=made[0] if made else "",
        inputs={key: source.key for key, source in read.items()},
        outputs=outputs,
        parameters=tuple(definitions.get("parameters", {})),
        conditions=conditions,
        after=after,
        always=always,
        work=work,
        extends=tuple(f"--{flag}" for flag in _option(arguments, "--extends").split(",") if flag),
    )


def _with_defaults(component: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    defined = component.get("inputDefinitions", {}).get("parameters", {})
    defaults = {key: definition["defaultValue"] for key, definition in defined.items() if "defaultValue" in definition}
    return {**{key: {"runtimeValue": {"constant": value}} for key, value in defaults.items()}, **given}


def _parameter(source: Mapping[str, Any], parameters: Mapping[str, Any], task: str) -> Any:
    if "runtimeValue" in source:
        value = source["runtimeValue"]["constant"]
        if isinstance(value, str):  # an f-string of the pipeline's parameters
            return _PARAMETER.sub(lambda m: _text(parameters[m[1]]), value)
        return value
    if "componentInputParameter" in source:
        return parameters[source["componentInputParameter"]]
    if "taskOutputParameter" in source:
        made = source["taskOutputParameter"]
        return _Made(made["producerTask"], made["outputParameterKey"])
    if "taskFinalStatus" in source:
        return _Status()
    raise UserError(f"the task {task} takes a parameter in a way unknown here: {source}", _ON_KFP)


def _artifact(source: Mapping[str, Any], artifacts: Mapping[str, _Made], task: str) -> _Made:
    if "componentInputArtifact" in source:
        return artifacts[source["componentInputArtifact"]]
    if "taskOutputArtifact" in source:
        made = source["taskOutputArtifact"]
        return _Made(made["producerTask"], made["outputArtifactKey"])
    raise UserError(f"the task {task} reads an artifact in a way unknown here: {source}", _ON_KFP)


def _conditions(text: str, values: Mapping[str, Any], task: str) -> tuple[Condition, ...]:
    found = []
    for term in filter(None, text.split(" && ")):
        match = _TERM.match(term.strip())
        made = values.get(match[2]) if match else None
        if match is None or not isinstance(made, _Made):
            raise UserError(f"the task {task} has a condition unknown here: {text}", _ON_KFP)
        equal = (match[3] == "==") is not bool(match[1])
        found.append(Condition(made.task, made.key, match[4], equal))
    return tuple(found)


def _component(spec: Mapping[str, Any], tasks: Mapping[str, Any], task: str) -> Mapping[str, Any]:
    component: Mapping[str, Any] = spec["components"][tasks[task]["componentRef"]["name"]]
    return component


def _option(arguments: list[str], flag: str) -> str:
    return next((value for f, value in itertools.pairwise(arguments) if f == flag), "")


def _text(value: Any) -> str:
    """As KFP's launcher writes a parameter into a command: strings as they are, all else in JSON; 19.0 is an int's."""
    if isinstance(value, _Status):
        return STATUS
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value)


def _typed(name: str, text: str, kind: str) -> Any:
    readers: dict[str, Callable[[str], Any]] = {
        "STRING": str,
        "NUMBER_INTEGER": int,
        "NUMBER_DOUBLE": float,
        "BOOLEAN": _boolean,
    }
    try:
        return readers[kind](text)
    except KeyError:
        raise UserError(f"the parameter {name} is of kind {kind}, unknown here", _ON_KFP) from None
    except ValueError:
        words = {"NUMBER_INTEGER": "a whole number", "NUMBER_DOUBLE": "a number", "BOOLEAN": "true or false"}[kind]
        raise UserError(f"the parameter {name} is {text!r}, and must be {words}", f"--param {name}=VALUE") from None


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"
