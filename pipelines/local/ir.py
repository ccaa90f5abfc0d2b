"""Flatten a compiled pipeline into the steps of a run.

Supports the part of KFP that our pipeline uses: container tasks, nested DAGs (from dsl.If and dsl.ExitHandler),
parameters that are constants or pipeline parameters, artifacts, and conditions on an output parameter. Any other
construct is an error that names it, raised here if it concerns the wiring of tasks, else in unsupported.py.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from components.platform.errors import UserError
from components.platform.launcher.__main__ import main as launcher
from components.platform.launcher.__main__ import module_of
from components.platform.launcher.images import CLUSTER_VARIABLE, COMMAND
from pipelines.local.step import ON_KFP, SINGLE_FILE_TYPES, Condition, Step
from pipelines.spec_changes import dags

STATUS = "{{status}}"
"""Placeholder for KFP's PipelineTaskFinalStatus in the arguments of an exit handler."""

_RUN_NAMES = ("{{$.pipeline_job_uuid}}", "{{$.pipeline_job_resource_name}}")
"""Placeholders for the ID and the resource name of a run; a run on this machine has neither."""
_PARAMETER = re.compile(r"\{\{\$\.inputs\.parameters\['([^']+)'\]\}\}")
_STRATEGIES = (None, "TRIGGER_STRATEGY_UNSPECIFIED", "ALL_UPSTREAM_TASKS_SUCCEEDED", "ALL_UPSTREAM_TASKS_COMPLETED")
_KNOWN_PLACEHOLDER = re.compile(
    r"\{\{\$(\.inputs\.parameters\['[^']+'\]|\.outputs\.parameters\['[^']+'\]\.output_file"
    r"|\.(in|out)puts\.artifacts\['[^']+'\]\.(uri|path))?\}\}"
)
_TERM = re.compile(r"^(!)?\(?inputs\.parameter_values\['([^']+)'\] (==|!=) '([^']*)'\)?$")


@dataclass(frozen=True)
class _TaskOutput:
    """An output of a task. key: name of the output parameter or artifact."""

    task: str
    key: str


def steps_of(spec: Mapping[str, Any], parameters: Mapping[str, Any]) -> tuple[Step, ...]:
    """Return the steps of the pipeline with these parameters, exit handlers (`always`) last.

    Raises:
        UserError: a task, or its wiring, is not supported (the error names it), or two tasks of nested pipelines have
            the same name or write artifacts of the same name.
    """
    _require_supported(spec)
    steps = tuple(_flatten(spec, spec["root"]["dag"], parameters, {}, (), ()))
    for what, names in (
        ("are named", [step.name for step in steps]),
        ("write an artifact named", [step.output for step in steps if step.output]),
    ):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UserError(f"two tasks of the pipeline {what} {twice[0]!r}", "rename one in its component.py")
    outputs = {step.output for step in steps if step.output and not step.always}
    for step in steps:
        if missing := sorted(set(step.inputs.values()) - outputs):
            problem = f"the task {step.name} reads {missing[0]!r}, which no supported task writes"
            raise UserError(problem, ON_KFP)
    return tuple(sorted(steps, key=lambda step: step.always))


def _flatten(
    spec: Mapping[str, Any],
    dag: Mapping[str, Any],
    parameters: Mapping[str, Any],
    artifacts: Mapping[str, _TaskOutput],
    conditions: tuple[Condition, ...],
    after: tuple[str, ...],
) -> Iterator[Step]:
    """Yield the steps of a DAG and of those nested in it. parameters, artifacts: the DAG's resolved inputs."""
    for name, task in dag["tasks"].items():
        component = spec["components"][task["componentRef"]["name"]]
        inputs = task.get("inputs", {})
        values = {
            key: _parameter(source, parameters, dag, spec, name)
            for key, source in _with_defaults(component, inputs.get("parameters", {})).items()
        }
        read = {
            key: _artifact(source, artifacts, dag, spec, name) for key, source in inputs.get("artifacts", {}).items()
        }
        policy = task.get("triggerPolicy", {})
        always = policy.get("strategy") == "ALL_UPSTREAM_TASKS_COMPLETED"
        task_conditions = _conditions(policy.get("condition", ""), values, name)
        if task_conditions is None:
            continue
        task_conditions = conditions + task_conditions
        waits = after if always else after + _leaves(spec, dag, task.get("dependentTasks", ()))
        if "dag" in component:
            yield from _flatten(spec, component["dag"], values, read, task_conditions, waits)
        else:
            executor = spec["deploymentSpec"]["executors"][component["executorLabel"]]
            yield _step(name, component, executor, values, read, task_conditions, waits, always)


def _leaves(spec: Mapping[str, Any], dag: Mapping[str, Any], tasks: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the steps that these tasks of a DAG stand for, including nested ones."""
    steps: list[str] = []
    for task in tasks:
        inner = _component(spec, dag, task).get("dag")
        steps += _leaves(spec, inner, inner["tasks"]) if inner else [task]
    return tuple(steps)


def _step(
    name: str,
    component: Mapping[str, Any],
    executor: Mapping[str, Any],
    values: Mapping[str, Any],
    read: Mapping[str, _TaskOutput],
    conditions: tuple[Condition, ...],
    after: tuple[str, ...],
    always: bool,
) -> Step:
    container = executor["container"]
    command = tuple(container.get("command", ()))
    arguments = [_PARAMETER.sub(lambda m: _text(values.get(m[1]), name), text) for text in container.get("args", ())]
    definitions = component.get("outputDefinitions", {})
    outputs = {key: value["artifactType"]["schemaTitle"] for key, value in definitions.get("artifacts", {}).items()}
    work = _option(arguments, "--work")
    made = [key for key, title in outputs.items() if title not in SINGLE_FILE_TYPES and key != work]
    if len(made) > 1:
        raise UserError(f"the task {name} writes {len(made)} artifacts", "this runner supports one artifact per task")
    return Step(
        name=name,
        image=container["image"],
        module=_module(command, arguments),
        command=command,
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


def _module(command: tuple[str, ...], arguments: list[str]) -> str:
    """Return the package that a container runs: that of the step which the launcher gets, or of its own command."""
    module = _option([*command], "-m")
    if command != COMMAND:
        return module
    context = launcher.make_context("launcher", [*arguments], resilient_parsing=True)
    return module_of(context.params["step"] or "")


def _with_defaults(component: Mapping[str, Any], sources: Mapping[str, Any]) -> dict[str, Any]:
    defined = component.get("inputDefinitions", {}).get("parameters", {})
    defaults = {key: definition["defaultValue"] for key, definition in defined.items() if "defaultValue" in definition}
    return {**{key: {"runtimeValue": {"constant": value}} for key, value in defaults.items()}, **sources}


def _parameter(
    source: Mapping[str, Any], parameters: Mapping[str, Any], dag: Mapping[str, Any], spec: Mapping[str, Any], task: str
) -> Any:
    if "runtimeValue" in source and "constant" in source["runtimeValue"]:
        value = source["runtimeValue"]["constant"]
        if value in _RUN_NAMES:
            return ""
        if isinstance(value, str):  # an f-string of the pipeline's parameters
            if "{{$" in _PARAMETER.sub("", value):
                raise UserError(f"the task {task} uses the unsupported placeholder {value}", ON_KFP)
            return _PARAMETER.sub(lambda m: _text(parameters.get(m[1]), task), value)
        return value
    if source.get("componentInputParameter") in parameters:
        return parameters[source["componentInputParameter"]]
    if "taskOutputParameter" in source:
        made = source["taskOutputParameter"]
        return _TaskOutput(_require_producer(spec, dag, made["producerTask"], task), made["outputParameterKey"])
    if "taskFinalStatus" in source:
        return STATUS
    raise UserError(f"the task {task} has a parameter with an unsupported source: {source}", ON_KFP)


def _artifact(
    source: Mapping[str, Any],
    artifacts: Mapping[str, _TaskOutput],
    dag: Mapping[str, Any],
    spec: Mapping[str, Any],
    task: str,
) -> _TaskOutput:
    if source.get("componentInputArtifact") in artifacts:
        return artifacts[source["componentInputArtifact"]]
    if "taskOutputArtifact" in source:
        made = source["taskOutputArtifact"]
        return _TaskOutput(_require_producer(spec, dag, made["producerTask"], task), made["outputArtifactKey"])
    raise UserError(f"the task {task} reads an artifact from an unsupported source: {source}", ON_KFP)


def _require_producer(spec: Mapping[str, Any], dag: Mapping[str, Any], producer: str, task: str) -> str:
    if producer not in dag["tasks"]:
        raise UserError(f"the task {task} reads an output of {producer}, which is not a task", ON_KFP)
    if "dag" in _component(spec, dag, producer):
        raise UserError(f"the task {task} reads an output of {producer}, which is a nested pipeline", ON_KFP)
    return producer


def _conditions(text: str, values: Mapping[str, Any], task: str) -> tuple[Condition, ...] | None:
    """Return the conditions on other tasks' outputs; None if the pipeline's parameters already make them false."""
    conditions = []
    for term in filter(None, text.split(" && ")):
        match = _TERM.match(term.strip())
        made = values.get(match[2]) if match else None
        if match is not None and isinstance(made, str):
            if (made == match[4]) is not ((match[3] == "==") is not bool(match[1])):
                return None
            continue
        if match is None or not isinstance(made, _TaskOutput):
            raise UserError(f"the task {task} has an unsupported condition: {text}", ON_KFP)
        equal = (match[3] == "==") is not bool(match[1])
        conditions.append(Condition(made.task, made.key, match[4], equal))
    return tuple(conditions)


def _component(spec: Mapping[str, Any], dag: Mapping[str, Any], task: str) -> Mapping[str, Any]:
    component: Mapping[str, Any] = spec["components"][dag["tasks"][task]["componentRef"]["name"]]
    return component


def _option(arguments: list[str], flag: str) -> str:
    return next((value for f, value in itertools.pairwise(arguments) if f == flag), "")


def _text(value: Any, task: str) -> str:
    """Format a parameter like KFP's launcher: strings as they are, other values as JSON; 19.0 stands for an int."""
    if value is None:
        raise UserError(f"the task {task} has an argument without a value, which is not supported here", ON_KFP)
    if isinstance(value, _TaskOutput):
        raise UserError(
            f"the task {task} takes the output {value.key} of {value.task} as a parameter, which is not supported here",
            ON_KFP,
        )
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value)


def _require_supported(spec: Mapping[str, Any]) -> None:
    """Raise a UserError that names the first task with an unsupported construct, and the construct."""
    for tasks in dags(spec):
        for name, task in tasks.items():
            try:
                unsupported = next(_unsupported_in(task, spec, tasks), None)
            except (KeyError, TypeError, AttributeError) as error:
                raise UserError(f"the task {name} is not as KFP's compiler writes it ({error!r})", ON_KFP) from None
            if unsupported:
                raise UserError(f"the task {name} {unsupported}, which is not supported here", ON_KFP)


def _unsupported_in(task: Mapping[str, Any], spec: Mapping[str, Any], tasks: Mapping[str, Any]) -> Iterator[str]:
    component = spec["components"][task["componentRef"]["name"]]
    if "parameterIterator" in task or "artifactIterator" in task:
        yield "is a loop (dsl.ParallelFor)"
    policy = task.get("triggerPolicy", {})
    if policy.get("strategy") not in _STRATEGIES:
        yield f"has the trigger strategy {policy['strategy']}"
    elif policy.get("strategy") == _STRATEGIES[-1]:
        yield from _unsupported_in_exit_handler(task, component, spec, tasks)
    for key, source in task.get("inputs", {}).get("parameters", {}).items():
        if "parameterExpressionSelector" in source:
            yield f"takes a part of a parameter as {key}"
    if "dag" in component:
        return
    executor = spec["deploymentSpec"]["executors"][component["executorLabel"]]
    if "container" not in executor:
        yield f"is not a container but has the executor {', '.join(executor) or 'nothing'}"
        return
    read = component.get("inputDefinitions", {}).get("artifacts", {})
    if any(definition.get("isArtifactList") for definition in read.values()):
        yield "reads a list of artifacts (dsl.Collected)"
    yield from _unsupported_in_container(executor["container"])


def _unsupported_in_exit_handler(
    task: Mapping[str, Any], component: Mapping[str, Any], spec: Mapping[str, Any], tasks: Mapping[str, Any]
) -> Iterator[str]:
    """Yield what is unsupported in a task that runs even if others fail: only exit handlers are supported."""
    before = [spec["components"][tasks[t]["componentRef"]["name"]] for t in task.get("dependentTasks", ())]
    if not all("dag" in waited for waited in before):
        yield "ignores failures of other tasks (ignore_upstream_failure)"
    if "dag" in component or component.get("outputDefinitions") or task.get("triggerPolicy", {}).get("condition"):
        yield "is an exit handler that is a pipeline, or has outputs or a condition"


def _unsupported_in_container(container: Mapping[str, Any]) -> Iterator[str]:
    command, arguments = container.get("command", []), container.get("args", [])
    if "--function_to_execute" in arguments:
        yield "is a Python function (dsl.component)"
    for variable in container.get("env", ()):
        if variable["name"] != CLUSTER_VARIABLE:  # for RayJobs, which local runs do not start
            yield f"sets the environment variable {variable['name']}"
    for argument in arguments:
        if argument.startswith(('{"IfPresent"', '{"Concat"')):
            yield f"has an argument that depends on which inputs are present: {argument}"
        rest = _KNOWN_PLACEHOLDER.sub("", argument)
        if "{{$" in rest:
            yield f"has the placeholder {rest[rest.index('{{$') :].partition('}}')[0]}}}}}"
    for part in command:
        if "{{$" in part:
            yield f"has a placeholder in its command: {part}"
