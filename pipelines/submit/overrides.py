"""Apply an overrides file to a PipelineSpec: resources, which all servers have, and settings of pods for KFP.

Resources are those of PipelineContainerSpec.ResourceSpec (pipeline_spec.proto): both the strings that KFP reads and the
numbers that older versions read, as kfp's compiler writes them. Environment variables are those of a
PipelineContainerSpec. The rest is a KubernetesExecutorConfig (kubernetes_executor_config.proto), as kfp-kubernetes
writes it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from components.platform.console import say
from components.platform.errors import UserError
from pipelines.spec import containers, expect_pipeline
from pipelines.spec_changes import dags
from pipelines.submit.overrides_document import (
    DEFAULT,
    INSTANCE_TYPE,
    SHARED_MEMORY,
    SHARED_MEMORY_VOLUME,
    Amount,
    StepOverrides,
    check_machine,
    check_mounts,
    check_variables,
    cpus,
    gigabytes,
)

_SMALL = (("cpu", Amount(request="500m"), cpus), ("memory", Amount(request="2G"), gigabytes))
_CLUSTER_NAMES = ".cluster.local,.svc,.kubeflow"
"""NO_PROXY for the names of services in a cluster whose KFP is in its usual namespace."""
_EXTENDED_RESOURCE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")


@expect_pipeline
def override_for_kfp(
    spec: Mapping[str, Any], overrides: Mapping[str, StepOverrides]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return a copy of the PipelineSpec with the resources of each step, and settings for kfp_package.platform_spec.

    Raises:
        UserError: the pipeline has no such step, KFP has no such setting, or a request exceeds its limit.
    """
    copy: dict[str, Any] = json.loads(json.dumps(spec))
    pods = {}
    for task, label, step in by_executor(spec, overrides):
        # What is set by default and what for this task may contradict each other.
        for check in (check_machine, check_mounts, check_variables):
            check(f"--overrides: {task}", step)
        if step.accelerator and not _EXTENDED_RESOURCE.fullmatch(step.accelerator.type):
            raise UserError(
                f"--overrides: {task}: accelerator: {step.accelerator.type!r} is no resource of a Kubernetes node",
                "for example nvidia.com/gpu; choose the model with node_selector",
            )
        _warn_of_proxy(task, step.env or {})
        _check_order(set_resources(copy["deploymentSpec"]["executors"][label]["container"], step), task)
        if config := _pod_settings(step):
            pods[label] = config
    return copy, pods


@expect_pipeline
def with_small_requests(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the PipelineSpec whose steps request half a processor and 2 GB at most, for small nodes."""
    copy: dict[str, Any] = json.loads(json.dumps(spec))
    for _label, container in containers(copy):
        resources = container.setdefault("resources", {})
        for name, most, read in _SMALL:
            asked = resources.get(f"{name}Request", resources.get(f"{name}Limit", math.inf))  # as Kubernetes does
            if asked > read(str(most.request)):
                _set_amount(resources, name, most, read)
    return copy


def by_executor(
    spec: Mapping[str, Any], overrides: Mapping[str, StepOverrides]
) -> list[tuple[str, str, StepOverrides]]:
    """Return (task, label of its executor, settings) for each container with settings.

    Raises:
        UserError: no step has such a name, or two steps share a container but not their settings.
    """
    labels: dict[str, set[str]] = {}
    for tasks in dags(spec):
        for task, definition in tasks.items():
            component = spec["components"][definition["componentRef"]["name"]]
            label = component.get("executorLabel", "")
            if "container" in spec["deploymentSpec"]["executors"].get(label, {}):
                labels.setdefault(task, set()).add(label)
    for task in overrides:
        if task != DEFAULT and task not in labels:
            raise UserError(
                f"--overrides: the pipeline has no step {task!r}", f"{DEFAULT}, {', '.join(sorted(labels))}"
            )
    default = overrides.get(DEFAULT, StepOverrides())
    chosen: dict[str, tuple[str, StepOverrides]] = {}
    for task in sorted(labels):
        step = overrides.get(task, StepOverrides()).over(default)
        for label in labels[task]:
            other, before = chosen.setdefault(label, (task, step))
            if before != step:
                raise UserError(
                    f"--overrides: the steps {other} and {task} are the same component, and share their settings",
                    "give both the same ones",
                )
    return [(task, label, step) for label, (task, step) in chosen.items() if step != StepOverrides()]


def _set_amount(resources: dict[str, Any], name: str, amount: Amount | None, read: Callable[[str], float]) -> None:
    """Set the request and limit of a ResourceSpec: name is cpu or memory."""
    for kind in ("request", "limit"):
        value = getattr(amount, kind, None)
        if value is not None:
            resources[f"{name}{kind.capitalize()}"] = read(str(value))
            resources[f"resource{name.capitalize()}{kind.capitalize()}"] = str(value)


def set_resources(container: dict[str, Any], step: StepOverrides) -> dict[str, Any]:
    """Set variables and resources of a PipelineContainerSpec; return its ResourceSpec.

    Other variables of the same name do not stay.
    """
    if step.env:
        others = [entry for entry in container.get("env", ()) if entry["name"] not in step.env]
        container["env"] = [*others, *({"name": name, "value": value} for name, value in step.env.items())]
    resources: dict[str, Any] = container.setdefault("resources", {})
    _set_amount(resources, "cpu", step.cpu, cpus)
    _set_amount(resources, "memory", step.memory, gigabytes)
    if step.accelerator:
        count = str(step.accelerator.count)  # an int64, which is text in protocol buffers' JSON
        kind = step.accelerator.type
        resources["accelerator"] = {"type": kind, "count": count, "resourceType": kind, "resourceCount": count}
    return resources


def _warn_of_proxy(task: str, variables: Mapping[str, str]) -> None:
    """Say that KFP's launcher obeys a proxy, too: it asks ML Metadata and KFP's API by gRPC, before the step starts."""
    names = {name.lower() for name in variables}
    if "https_proxy" in names and "no_proxy" not in names:
        say(f"warning: --overrides: {task}: HTTPS_PROXY is set without NO_PROXY, so KFP's launcher asks the proxy for")
        say("  KFP's own services, and the step fails before it starts")
        say(f"  remedy: NO_PROXY: {_CLUSTER_NAMES},ADDRESS, that of kubectl get service kubernetes --namespace default")


def _check_order(resources: Mapping[str, Any], task: str) -> None:
    """Raise UserError if a request, possibly the compiled pipeline's, exceeds its limit: no pod would start."""
    for name in ("cpu", "memory"):
        request, limit = (resources.get(f"{name}{kind}") for kind in ("Request", "Limit"))
        if request and limit and request > limit:
            asked = resources.get(f"resource{name.capitalize()}Request", request)
            allowed = resources.get(f"resource{name.capitalize()}Limit", limit)
            raise UserError(
                f"--overrides: {task}: {name}: the request {asked} exceeds the limit {allowed}",
                f"set both: {name}: {{request: {allowed}, limit: {allowed}}}",
            )


def _pod_settings(step: StepOverrides) -> dict[str, Any]:
    config: dict[str, Any] = {}
    machine = {INSTANCE_TYPE: step.machine_type} if step.machine_type else {}
    if selector := {**(step.node_selector or {}), **machine}:
        config["nodeSelector"] = {"labels": selector}
    if step.tolerations:
        for toleration in map(msgspec.to_builtins, step.tolerations):
            if "toleration_seconds" in toleration:
                toleration["tolerationSeconds"] = str(toleration.pop("toleration_seconds"))
            config.setdefault("tolerations", []).append({key: value for key, value in toleration.items() if value})
    if step.volumes:
        config["pvcMount"] = [
            # kfp-kubernetes writes the name a second time, in a field that is deprecated.
            {"constant": volume.pvc, "mountPath": volume.mount_path, **_named_object("pvcName", volume.pvc)}
            | ({"subPath": volume.sub_path} if volume.sub_path else {})
            for volume in step.volumes
        ]
    if step.shared_memory:
        # No version of KFP's driver up to 2.17 reads `enabledSharedMemory`.
        memory = {"volumeName": SHARED_MEMORY_VOLUME, "mountPath": SHARED_MEMORY, "medium": "Memory"}
        config["emptyDirMounts"] = [{**memory, "sizeLimit": step.shared_memory}]
    for field, key in (("secret", "secret"), ("configMap", "config_map")):  # of KFP, and of --overrides
        if variables := getattr(step, f"{key}_as_env"):
            config[f"{field}AsEnv"] = [
                {
                    **_named_object(f"{field}Name", getattr(entry, key), deprecated=True),
                    "keyToEnv": [
                        {f"{field}Key": name, "envVar": variable} for name, variable in entry.key_to_env.items()
                    ],
                    "optional": entry.optional,
                }
                for entry in variables
            ]
        if volumes := getattr(step, f"{key}_as_volume"):
            config[f"{field}AsVolume"] = [
                {
                    **_named_object(f"{field}Name", getattr(volume, key), deprecated=True),
                    "mountPath": volume.mount_path,
                    "optional": volume.optional,
                }
                for volume in volumes
            ]
    if step.image_pull_secrets:
        config["imagePullSecret"] = [
            _named_object("secretName", name, deprecated=True) for name in step.image_pull_secrets
        ]
    return config


def _named_object(field: str, name: str, deprecated: bool = False) -> dict[str, Any]:
    """Return the fields of a KubernetesExecutorConfig that name a Secret, ConfigMap or claim.

    Args:
        field: the field that is deprecated; `field` + "Parameter" has taken its place.
    """
    return {f"{field}Parameter": {"runtimeValue": {"constant": name}}} | ({field: name} if deprecated else {})
