"""The keys and values of an overrides file: what each step gets instead of the compiled pipeline's settings.

default:                # every step that does not set the key itself
  tolerations: [{key: dedicated, operator: Equal, value: mlgo, effect: NoSchedule}]
ppo:                    # a task's name
  cpu: {request: 16, limit: 32}
  memory: {request: 32G, limit: 64G}
  accelerator: {type: nvidia.com/gpu, count: 1}
  node_selector: {cloud.google.com/gke-nodepool: large}
  machine_type: n2-highmem-16
  volumes: [{pvc: ccache, mount_path: /cache, sub_path: mlgo}]
  shared_memory: 4Gi
  env: {HTTPS_PROXY: "http://proxy:3128"}
  secret_as_env: [{secret: mlgo-s3, key_to_env: {access_key: AWS_ACCESS_KEY_ID}}]
  secret_as_volume: [{secret: mlgo-gcs, mount_path: /secrets/gcs}]
  config_map_as_env: [{config_map: site, key_to_env: {region: AWS_REGION}}]
  config_map_as_volume: [{config_map: recipes, mount_path: /recipes}]
  image_pull_secrets: [registry]
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from components.core.formats.policy import IMAGE_VARIABLE
from components.platform.errors import UserError
from components.platform.launcher import commit_status
from components.platform.launcher.images import CLUSTER_VARIABLE
from components.platform.launcher.notify import (
    NOTIFY_SECRET_VARIABLE,
    NOTIFY_VARIABLE,
    OUTCOME_VARIABLE,
    PAGES_VARIABLE,
)
from components.platform.rayjob.spec import DNS_LABEL, SUBDOMAIN
from components.platform.storage.input_files import parse_yaml, read_text

DEFAULT = "default"
_REMEDY = "docs/pipeline.md describes the file"
_CPU = re.compile(r"(?P<number>[0-9]{1,6}(\.[0-9]{1,6})?)(?P<unit>m?)")
_MEMORY = re.compile(r"(?P<number>[0-9]{1,9})(?P<unit>[MGT]i?)")
_BYTES = {"M": 10**6, "G": 10**9, "T": 10**12, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_LABEL_NAME = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_DNS_LABEL = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
LABEL_KEY = re.compile(rf"((?=[^/]{{1,253}}/){_DNS_LABEL}(\.{_DNS_LABEL})*/)?{_LABEL_NAME}")
LABEL_VALUE = re.compile(rf"({_LABEL_NAME})?")
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
"""Label of a node that the cloud's controller sets, for example n2-highmem-8."""
_KEY = re.compile(r"(?!\.\.?$)[-._a-zA-Z0-9]{1,253}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PIPELINE_VARIABLES = (
    CLUSTER_VARIABLE,
    IMAGE_VARIABLE,
    NOTIFY_VARIABLE,
    NOTIFY_SECRET_VARIABLE,
    OUTCOME_VARIABLE,
    PAGES_VARIABLE,
    commit_status.COMMIT_VARIABLE,
    commit_status.CONTEXT_VARIABLE,
    commit_status.SECRET_VARIABLE,
    commit_status.TOKEN_VARIABLE,
)
"""Environment variables that the pipeline, --notify-secret or --commit-secret sets."""
SHARED_MEMORY = "/dev/shm"
SHARED_MEMORY_VOLUME = "shared-memory"
_KFP_VOLUMES = (
    "kfp-launcher",
    "gcs-scratch",
    "s3-scratch",
    "minio-scratch",
    "dot-local-scratch",
    "dot-cache-scratch",
    "dot-config-scratch",
    "ca-bundle",
    SHARED_MEMORY_VOLUME,
)
"""Volumes that KFP (argocompiler/container.go) or `shared_memory` gives to the pods of steps."""
_PATH_NAME = r"(?!\.{1,2}(/|$))[\w.@+-]+"
_MOUNT_PATH = re.compile(rf"(/{_PATH_NAME})+/?", re.ASCII)
_SUB_PATH = re.compile(rf"{_PATH_NAME}(/{_PATH_NAME})*/?", re.ASCII)
Text = Annotated[str, Meta(min_length=1)]


def cpus(text: str) -> float:
    """Return a quantity of CPUs, such as `0.5` or `500m`, as a number. ValueError if it is not a positive quantity."""
    match = _CPU.fullmatch(text)
    value = float(match["number"]) / (1000 if match["unit"] else 1) if match else 0
    if not value:
        raise ValueError("is no number of CPUs, such as 8, 0.5 or 500m")
    return value


def gigabytes(text: str) -> float:
    """Return a quantity of memory, such as `16G` or `512Mi`, in 1e9 bytes. ValueError if it is not a positive one."""
    match = _MEMORY.fullmatch(text)
    value = int(match["number"]) * _BYTES[match["unit"]] / 10**9 if match else 0
    if not value:
        raise ValueError("is no amount of memory with a unit: M, G, T, Mi, Gi or Ti")
    return value


class Amount(Struct, forbid_unknown_fields=True):
    """The amount that a step requests, which its node must have free, and the amount that it may use."""

    request: str | int | float | None = None
    limit: str | int | float | None = None


class Accelerator(Struct, forbid_unknown_fields=True):
    """KFP: the name of a Kubernetes resource; Vertex AI: an AcceleratorType of its API."""

    type: Text
    count: Annotated[int, Meta(ge=1, le=64)] = 1


class Toleration(Struct, forbid_unknown_fields=True):
    """A toleration of Kubernetes."""

    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | UnsetType = UNSET
    toleration_seconds: Annotated[int, Meta(ge=0, le=2**31)] | UnsetType = UNSET


class Volume(Struct, forbid_unknown_fields=True):
    """A PersistentVolumeClaim that exists, in the namespace of the steps, and where the step sees it."""

    pvc: Text
    mount_path: Text
    sub_path: str = ""


class SecretEnv(Struct, forbid_unknown_fields=True):
    """Keys of a Secret as environment variables: key -> variable."""

    secret: Text
    key_to_env: dict[str, str]
    optional: bool = False


class SecretVolume(Struct, forbid_unknown_fields=True):
    """A Secret as a directory with a file for each key."""

    secret: Text
    mount_path: Text
    optional: bool = False


class ConfigMapEnv(Struct, forbid_unknown_fields=True):
    """Keys of a ConfigMap as environment variables: key -> variable."""

    config_map: Text
    key_to_env: dict[str, str]
    optional: bool = False


class ConfigMapVolume(Struct, forbid_unknown_fields=True):
    """A ConfigMap as a directory with a file for each key."""

    config_map: Text
    mount_path: Text
    optional: bool = False


class StepOverrides(Struct, forbid_unknown_fields=True):
    """Settings of one step; None for those that do not change."""

    cpu: Amount | None = None
    memory: Amount | None = None
    accelerator: Accelerator | None = None
    node_selector: dict[str, str] | None = None
    tolerations: tuple[Toleration, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    machine_type: Text | None = None
    shared_memory: str | None = None
    env: dict[str, str] | None = None
    secret_as_env: tuple[SecretEnv, ...] | None = None
    secret_as_volume: tuple[SecretVolume, ...] | None = None
    config_map_as_env: tuple[ConfigMapEnv, ...] | None = None
    config_map_as_volume: tuple[ConfigMapVolume, ...] | None = None
    image_pull_secrets: tuple[Text, ...] | None = None

    def mounts(self) -> list[tuple[str, str, str]]:
        """Return the key, the name of the volume and the path of everything that is mounted."""
        named = (("volumes", "pvc"), ("secret_as_volume", "secret"), ("config_map_as_volume", "config_map"))
        mounts = [(key, getattr(one, of), one.mount_path) for key, of in named for one in getattr(self, key) or ()]
        return mounts + ([("shared_memory", SHARED_MEMORY_VOLUME, SHARED_MEMORY)] if self.shared_memory else [])

    def over(self, default: StepOverrides) -> StepOverrides:
        """Return these settings, and those of `default` for keys that are not here."""
        given = {key: value for key in self.__struct_fields__ if (value := getattr(self, key)) is not None}
        return msgspec.structs.replace(default, **given)


KEYS = StepOverrides.__struct_fields__


def read_overrides(path: str | Path) -> dict[str, StepOverrides]:
    """Read an overrides file: settings by task's name, and for all tasks under DEFAULT.

    Raises:
        UserError: the file cannot be read, or a key or value is invalid, on whichever server.
    """
    documents = parse_yaml(read_text(Path(path), _REMEDY), str(path), _REMEDY)
    if len(documents) != 1 or not isinstance(documents[0], dict) or not documents[0]:
        raise UserError(f"{path} is not one mapping of tasks to settings", _REMEDY)
    return {str(task): _step(document, f"{path}: {task}") for task, document in documents[0].items()}


def _step(document: Any, where: str) -> StepOverrides:
    """Return the settings in a document of plain values. UserError, beginning with `where`, if one is invalid."""
    if not isinstance(document, dict) or not document:
        raise UserError(f"{where}: not a mapping of settings", f"settings: {', '.join(KEYS)}")
    try:
        step = msgspec.convert(document, StepOverrides)
    except msgspec.ValidationError as error:
        raise UserError(f"{where}: {error}", f"settings: {', '.join(KEYS)}; {_REMEDY}") from None
    for key, amount, read in (("cpu", step.cpu, cpus), ("memory", step.memory, gigabytes)):
        _check_amount(f"{where}: {key}", amount, read)
    for key, value in (step.node_selector or {}).items():
        if not LABEL_KEY.fullmatch(key) or not LABEL_VALUE.fullmatch(value):
            raise UserError(
                f"{where}: node_selector {key}: {value!r} is no label of a node", "kubectl get nodes --show-labels"
            )
    if step.machine_type is not None and not LABEL_VALUE.fullmatch(step.machine_type):
        raise UserError(
            f"{where}: machine_type {step.machine_type!r} is no value of a node's label {INSTANCE_TYPE}",
            f"kubectl get nodes --label-columns {INSTANCE_TYPE}",
        )
    check_machine(where, step)
    for toleration in step.tolerations or ():
        if problem := _toleration_problem(toleration):
            raise UserError(f"{where}: tolerations: {problem}", "kubectl explain pod.spec.tolerations")
    for volume in step.volumes or ():
        if volume.sub_path and not _SUB_PATH.fullmatch(volume.sub_path):
            raise UserError(
                f"{where}: volumes: sub_path {volume.sub_path!r} is no path in the volume", "for example caches/mlgo"
            )
    if step.shared_memory is not None:
        try:
            gigabytes(step.shared_memory)
        except ValueError as error:
            raise UserError(f"{where}: shared_memory: {step.shared_memory!r} {error}", "for example 2Gi") from None
    for name in step.image_pull_secrets or ():
        _check_object(f"{where}: image_pull_secrets", name, "secret")
    check_mounts(where, step)
    check_variables(where, step)
    return step


def check_machine(where: str, step: StepOverrides) -> None:
    if step.machine_type and INSTANCE_TYPE in (step.node_selector or {}):
        raise UserError(f"{where}: machine_type is node_selector {INSTANCE_TYPE}, which is given, too", "leave one out")


def check_mounts(where: str, step: StepOverrides) -> None:
    """Raise UserError if Kubernetes refuses what a step mounts, also by two keys of its settings together."""
    mounts = step.mounts()
    for key, name, path in mounts:
        if key == "shared_memory":
            continue
        kind = {"volumes": "pvc", "secret_as_volume": "secret", "config_map_as_volume": "configmap"}[key]
        # KFP names a volume after its claim, Secret or ConfigMap.
        if not DNS_LABEL.fullmatch(name) or name in _KFP_VOLUMES:
            described = {"pvc": "a claim", "secret": "a Secret", "configmap": "a ConfigMap"}[kind]
            raise UserError(
                f"{where}: {key}: {name!r} is no name of {described} that KFP can mount", f"kubectl get {kind}"
            )
        if not _MOUNT_PATH.fullmatch(path):
            raise UserError(f"{where}: {key}: mount_path {path!r} is no path for a mount", "for example /cache")
    for index, what in ((1, "the volume"), (2, "mount_path")):
        values = [mount[index].rstrip("/") for mount in mounts]
        if twice := next((value for value in values if values.count(value) > 1), None):
            keys = " and ".join(dict.fromkeys(mount[0] for mount in mounts if mount[index].rstrip("/") == twice))
            raise UserError(
                f"{where}: {keys}: {what} {twice} is given twice",
                "mount each claim, Secret and ConfigMap once, each under a name and at a path of its own",
            )


def check_variables(where: str, step: StepOverrides) -> None:
    """Raise UserError if an environment variable of a step is invalid, not for users, or set by two keys."""
    variables = list(step.env or ())
    for key, entries in (("secret_as_env", step.secret_as_env), ("config_map_as_env", step.config_map_as_env)):
        for entry in entries or ():
            kind, name = ("secret", entry.secret) if isinstance(entry, SecretEnv) else ("configmap", entry.config_map)
            _check_object(f"{where}: {key}", name, kind)
            if not entry.key_to_env:
                raise UserError(f"{where}: {key}: {name} has no keys", "key_to_env: {KEY: VARIABLE}")
            for text in entry.key_to_env:
                if not _KEY.fullmatch(text):
                    raise UserError(f"{where}: {key}: {text!r} is no key of {name}", f"kubectl describe {kind} {name}")
            variables += entry.key_to_env.values()
    for variable in variables:
        if not _VARIABLE.fullmatch(variable):
            raise UserError(f"{where}: {variable!r} is no name of an environment variable", "for example HTTPS_PROXY")
        if variable in _PIPELINE_VARIABLES or variable.startswith("KFP_"):
            raise UserError(f"{where}: the pipeline sets the environment variable {variable} itself", "leave it out")
        if variables.count(variable) > 1:
            raise UserError(f"{where}: the environment variable {variable} is set twice", "leave one out")
    for variable, value in (step.env or {}).items():
        if "\0" in value:
            raise UserError(f"{where}: env: {variable} has a null character", "remove it")


def _check_object(where: str, name: str, kind: str) -> None:
    if not SUBDOMAIN.fullmatch(name):
        raise UserError(f"{where}: {name!r} is no name of a Kubernetes object", f"kubectl get {kind}")


def _check_amount(where: str, amount: Amount | None, read: Any) -> None:
    if amount is None:
        return
    if amount.request is None and amount.limit is None:
        raise UserError(f"{where} has neither request nor limit", f"{where.rpartition(' ')[2]}: {{limit: VALUE}}")
    for name in ("request", "limit"):
        value = getattr(amount, name)
        try:
            if value is not None:
                read(str(value))
        except ValueError as error:
            raise UserError(f"{where}: {name}: {value!r} {error}", _REMEDY) from None


def _toleration_problem(toleration: Toleration) -> str:
    if toleration.operator == "Exists" and toleration.value:
        return f"the operator Exists has no value, but {toleration.value!r} is given"
    if not toleration.key and toleration.operator != "Exists":
        return "without a key, the operator must be Exists"
    if toleration.key and not LABEL_KEY.fullmatch(toleration.key):
        return f"{toleration.key!r} is no key of a taint"
    if toleration.toleration_seconds is not UNSET and toleration.effect != "NoExecute":
        return "toleration_seconds needs the effect NoExecute"
    return ""
