"""Find KFP constructs that the local runners do not support, before anything runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from components.platform.errors import UserError
from components.platform.launcher.images import CLUSTER_VARIABLE

ON_KFP = "submit it to KFP, which runs every pipeline"
_STRATEGIES = (None, "TRIGGER_STRATEGY_UNSPECIFIED", "ALL_UPSTREAM_TASKS_SUCCEEDED", "ALL_UPSTREAM_TASKS_COMPLETED")
_KNOWN_PLACEHOLDER = re.compile(
    r"\{\{\$(\.inputs\.parameters\['[^']+'\]|\.outputs\.parameters\['[^']+'\]\.output_file"
    r"|\.(in|out)puts\.artifacts\['[^']+'\]\.(uri|path))?\}\}"
)


def require_supported(spec: Mapping[str, Any]) -> None:
    """Raise a UserError that names the first task with an unsupported construct, and the construct."""
    for dag in (spec["root"]["dag"], *(c["dag"] for c in spec.get("components", {}).values() if "dag" in c)):
        for name, task in dag["tasks"].items():
            try:
                unsupported = next(_unsupported_in(task, spec, dag["tasks"]), None)
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
