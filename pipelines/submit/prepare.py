"""Prepare a compiled pipeline for a server: digests of images, settings of steps, the cache."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from components.platform.errors import UserError
from components.platform.launcher.images import CLUSTER, IMAGES
from components.platform.launcher.notify import NOTIFY_SECRET_VARIABLE, NOTIFY_VARIABLE, PAGES_VARIABLE
from components.platform.rayjob.manifest import RUN_LABEL
from components.platform.rayjob.step_lease import RUN_VARIABLE
from pipelines.images import Image
from pipelines.spec import (
    containers,
    expect_pipeline,
    gets_ray_image,
    used_images,
    with_images,
)
from pipelines.submit.overrides_document import LABEL_KEY, LABEL_VALUE

NOTIFY_KEY = "url"
"""Key of the webhook's URL in the Secret that --notify-secret names."""
_SECRET = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_RESERVED_LABELS = ("kubernetes.io", "k8s.io", "argoproj.io", "kubeflow.org")
"""Prefixes of labels that Kubernetes, Argo and KFP set themselves (KFP also `pipeline/runid`)."""
_NEWEST_FIELDS = (2, 16)
"""The version of KFP in which securityContext and subPath came into kubernetes_executor_config.proto."""
_MAX_VERTEX_RETRIES_S = 3600
_FOLLOWING = {
    "cpuLimit": 1.0,
    "cpuRequest": 0.1,
    "memoryLimit": 2.0,
    "memoryRequest": 0.5,
    "resourceCpuLimit": "1",
    "resourceCpuRequest": "100m",
    "resourceMemoryLimit": "2G",
    "resourceMemoryRequest": "500M",
}
"""Resources of a step that only waits while a Ray cluster trains. KFP reads the strings, older versions the numbers
(CPUs and GB)."""


def ready_spec(spec: Mapping[str, Any], images: Mapping[str, Image], ray: bool | None = False) -> dict[str, Any]:
    """Return a copy of a PipelineSpec with the digests of pushed images.

    Args:
        images: from pipelines.images.read_images.
        ray: whether a step starts a Ray cluster and needs the image of its nodes. None if that is unknown, as for a
            pipeline that is uploaded: the image is named if it was pushed.

    Raises:
        UserError: an image was not pushed, so a cluster could not pull it.
    """
    references = {}
    for key in (*used_images(spec), *(() if ray is False else (CLUSTER,))):
        if key not in images or "@sha256:" not in images[key].reference:
            if key == CLUSTER and ray is None:
                continue
            raise UserError(
                f"the image {key} has no digest in a registry, so a cluster cannot pull it",
                f"mlgo images build{' --all' if ray or key == CLUSTER else ''} --registry HOST/PROJECT/REPOSITORY && "
                "mlgo images push",
            )
        references[IMAGES[key]] = images[key].reference
    copy = with_images(dict(spec), references)
    for _label, container in containers(copy) if ray else ():
        if gets_ray_image(container):
            container["resources"] = dict(_FOLLOWING)
    return copy


def dags(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the tasks of each DAG of a PipelineSpec, by name: the root's, and those of components."""
    for component in (spec["root"], *spec.get("components", {}).values()):
        if "dag" in component:
            yield component["dag"]["tasks"]


@expect_pipeline
def without_cache(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a PipelineSpec whose steps all run, even if the server has their results.

    kfp's client has an option for this, but it changes the root's tasks only, and ours are below an exit handler.
    """
    copy: dict[str, Any] = json.loads(json.dumps(spec))
    for tasks in dags(copy):
        for task in tasks.values():
            task["cachingOptions"] = {}  # enableCache: false, as protocol buffers write it
    return copy


@expect_pipeline
def retries_for_vertex(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a PipelineSpec whose attempts of a step take no longer than Vertex AI's API allows."""
    copy: dict[str, Any] = json.loads(json.dumps(spec))
    for tasks in dags(copy):
        for task in tasks.values():
            retry = task.get("retryPolicy", {})
            if (limit := retry.get("backoffMaxDuration")) and float(limit.removesuffix("s")) > _MAX_VERTEX_RETRIES_S:
                retry["backoffMaxDuration"] = f"{_MAX_VERTEX_RETRIES_S}s"
    return copy


@expect_pipeline
def notify_settings(spec: Mapping[str, Any], secret: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a copy of a PipelineSpec whose last step knows the Secret with the webhook's URL, and settings for
    `platform_spec` that pass the URL to it.

    Args:
        secret: name of a Kubernetes Secret with the key NOTIFY_KEY, in the namespace of the steps.

    Raises:
        UserError: `secret` is not a valid name of a Secret, or the pipeline has no such step.
    """
    if len(secret) > 253 or not _SECRET.fullmatch(secret):
        # Do not print its value: if a URL was passed by mistake, it is the secret itself.
        raise UserError(
            "--notify-secret is not the name of a Kubernetes Secret",
            f"kubectl create secret generic mlgo-notify --from-file {NOTIFY_KEY}=FILE, and --notify-secret mlgo-notify",
        )
    notifying = _finishing(spec)
    if not notifying:
        raise UserError("no step of the pipeline reports how it ended", "leave --notify-secret out")
    copy: dict[str, Any] = json.loads(json.dumps(spec))
    for label in notifying:
        copy["deploymentSpec"]["executors"][label]["container"].setdefault("env", []).append(
            {"name": NOTIFY_SECRET_VARIABLE, "value": secret}
        )
    entry = {
        **named_object("secretName", secret, deprecated=True),
        "keyToEnv": [{"secretKey": NOTIFY_KEY, "envVar": NOTIFY_VARIABLE}],
        "optional": True,  # otherwise the pod waits for a Secret that does not exist, and the run has no end
    }
    return copy, {label: {"secretAsEnv": [entry]} for label in notifying}


@expect_pipeline
def security_settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for `platform_spec` with which steps may run where Pod Security is `restricted`.

    KFP gives the pods of steps everything else that it needs, but lets images decide on the user. Ours have a user
    (docker/*/Dockerfile); its number is left out, because OpenShift assigns another one.
    """
    config = {"securityContext": {"runAsNonRoot": True}}
    return {label: config for label, container in containers(spec) if _runs_our_code(container.get("command", ()))}


def _runs_our_code(command: Sequence[str]) -> bool:
    return list(command[:2]) == ["python", "-m"] and command[2].startswith(("components.", "pipelines."))


def named_object(field: str, name: str, deprecated: bool = False) -> dict[str, Any]:
    """Return the fields of a KubernetesExecutorConfig that name a Secret, ConfigMap or claim.

    Args:
        field: the field that is deprecated; `field` + "Parameter" has taken its place.
        deprecated: write both, as kfp-kubernetes does.
    """
    named: dict[str, Any] = {f"{field}Parameter": {"runtimeValue": {"constant": name}}}
    return {**named, **({field: name} if deprecated else {})}


@expect_pipeline
def with_run_pages(spec: Mapping[str, Any], pages: str) -> dict[str, Any]:
    """Return a copy of a PipelineSpec whose last step knows the URL to which the ID of a run is appended."""
    copy: dict[str, Any] = json.loads(json.dumps(spec))
    for label in _finishing(copy):
        container = copy["deploymentSpec"]["executors"][label]["container"]
        container["env"] = [*container.get("env", ()), {"name": PAGES_VARIABLE, "value": pages}]
    return copy


def _finishing(spec: Mapping[str, Any]) -> list[str]:
    """Return the labels of the executors of steps that report how the pipeline ended."""
    return [label for label, container in containers(spec) if "pipelines.finish" in container.get("command", ())]


@expect_pipeline
def run_id_settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for `platform_spec` that tell the ID of the run to a step that may start a Ray cluster."""
    field = {"name": RUN_VARIABLE, "fieldPath": f"metadata.labels['{RUN_LABEL}']"}
    return {label: {"fieldPathAsEnv": [field]} for label, container in containers(spec) if gets_ray_image(container)}


@expect_pipeline
def pod_labels(spec: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    """Return settings for `platform_spec` that label the pods of all steps.

    Raises:
        UserError: one is no label of Kubernetes, or belongs to Kubernetes, Argo or KFP.
    """
    for key, value in labels.items():
        prefix = key.rpartition("/")[0]
        if not LABEL_KEY.fullmatch(key) or not LABEL_VALUE.fullmatch(value):
            raise UserError(f"--label {key}={value} is no label of Kubernetes", "for example --label team=compilers")
        if prefix == "pipeline" or any(f".{prefix}".endswith(f".{domain}") for domain in _RESERVED_LABELS):
            raise UserError(f"--label {key}: labels of {prefix} are not for users", "choose another prefix, or none")
    if not labels:
        return {}
    metadata = {"podMetadata": {"labels": dict(labels)}}
    return {label: metadata for label, _container in containers(spec)}


def platform_spec(*settings: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return KFP's PlatformSpec for Kubernetes, None if there are no settings.

    Args:
        settings: executor label -> fields of a KubernetesExecutorConfig of kfp-kubernetes
            (kubernetes_executor_config.proto). Lists of the same executor's same field are joined; no two have another
            field of it.
    """
    executors: dict[str, dict[str, Any]] = {}
    for setting in settings:
        for label, config in setting.items():
            merged = executors.setdefault(label, {})
            for field, value in config.items():
                merged[field] = [*merged.get(field, ()), *value] if isinstance(value, list) else value
    return {"platforms": {"kubernetes": {"deploymentSpec": {"executors": executors}}}} if executors else None


def known_settings(platform: Mapping[str, Any], version: tuple[int, int] | None) -> dict[str, Any]:
    """Return a PlatformSpec that a KFP server knows: an older one refuses fields that came later.

    Args:
        version: the server's; None if it is unknown, and taken for a new one.

    Raises:
        UserError: the server does not know a field that --overrides asks for.
    """
    copy: dict[str, Any] = json.loads(json.dumps(platform))
    if version is None or version >= _NEWEST_FIELDS:
        return copy
    for label, config in copy["platforms"]["kubernetes"]["deploymentSpec"]["executors"].items():
        config.pop("securityContext", None)  # no pod of such a KFP could run where that is needed
        if any("subPath" in mount for mount in config.get("pvcMount", ())):
            raise UserError(
                f"--overrides: {label.removeprefix('exec-')}: volumes: sub_path needs KFP "
                f"{'.'.join(map(str, _NEWEST_FIELDS))}, and the server is {'.'.join(map(str, version))}",
                "mount the whole volume",
            )
    return copy
