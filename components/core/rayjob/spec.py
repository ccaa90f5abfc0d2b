"""What a RayJob of ours is made of, and which values cannot be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from components.core.console import UserError

RAY_VERSION = "2.60.0"
"""Of the image. KubeRay does not look: it takes our word for which health checks and authentication there are."""
GKE_SPOT = ("cloud.google.com/gke-spot", "true")
"""Label and taint of GKE's spot nodes."""
NAMESPACE = "mlgo"
"""Of k8s/base, where service accounts, rights and network policies of RayJobs are."""
TRAINER = ("mlgo", "ppo")
"""The trainer's program in the image mlgo-cluster, whose `python` and `ray` are those of the nodes."""
ON_HEAD = "ray:auto"
"""--workers of a trainer that runs on a cluster's head."""

MAX_NAME = 47  # KubeRay appends to it: to 53 for the cluster's name, to 63 for the names of services
_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1035, as KubeRay wants names
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DIGEST = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_INT32 = 2**31 - 1
_MIN_BYTES = 2**26


@dataclass(frozen=True)
class RayJobSpec:
    """What differs from one training to the next, and from one cluster to the next. UserError for what cannot be.

    name: see `job_name`. image: with a digest, of head and workers. entrypoint: the trainer's command line; its driver
    runs on the head, where RAY_ADDRESS is set, and may use `head_cpus` and `head_memory_bytes`.
    service_account: of head and workers; only the head's autoscaler gets its token, for it asks Kubernetes.
    min_workers, max_workers: pods, of `cpus_per_worker` tasks at a time with `memory_per_task_bytes` each.
    spot: label (and taint) of nodes that may vanish: workers run there only, the head anywhere else. None: anywhere.
    env: more variables of every Ray container.
    credentials_secret: a Secret with `key.json`, a key of Google Cloud's, where there is no workload identity.
    retries: how often KubeRay begins again with a new cluster when the driver or the head failed.
    ttl_s: how long the cluster stays after the job. start_limit_s: of scheduling and pulling. deadline_s: of all of it.
    """

    name: str
    namespace: str
    image: str
    entrypoint: tuple[str, ...]
    service_account: str = "mlgo-ray"
    min_workers: int = 0
    max_workers: int = 8
    cpus_per_worker: int = 4
    memory_per_task_bytes: int = 2**30
    head_cpus: int = 4
    head_memory_bytes: int = 8 * 2**30
    spot: tuple[str, str] | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    credentials_secret: str = ""
    retries: int = 1
    ttl_s: int = 60
    start_limit_s: int = 1800
    deadline_s: int = 72 * 3600

    def __post_init__(self) -> None:
        _matches(self.name, _LABEL, "name of a RayJob", "letters a-z, digits and hyphens, a letter first", MAX_NAME)
        _matches(self.namespace, _SUBDOMAIN, "namespace", "letters a-z, digits and hyphens", 63)
        _matches(self.service_account, _SUBDOMAIN, "service account", "letters a-z, digits, hyphens and dots", 253)
        if self.credentials_secret:
            _matches(self.credentials_secret, _SUBDOMAIN, "Secret", "letters a-z, digits, hyphens and dots", 253)
        if not _DIGEST.fullmatch(self.image):
            raise UserError(
                f"the image {self.image!r} of a RayJob has no digest, and might be another tomorrow",
                "give it as NAME@sha256:..., as `mlgo images push` writes it to build/images.json",
            )
        for name, low in (
            ("min_workers", 0),
            ("max_workers", 1),
            ("cpus_per_worker", 1),
            ("head_cpus", 1),
            ("retries", 0),
            ("ttl_s", 0),
            ("start_limit_s", 1),
            ("deadline_s", 1),
        ):
            if not low <= getattr(self, name) <= _MAX_INT32:
                raise UserError(f"{name} of a RayJob is {getattr(self, name)}", f"give {low} to {_MAX_INT32}")
        if self.min_workers > self.max_workers:
            raise UserError(
                f"a RayJob of at least {self.min_workers} and at most {self.max_workers} workers", "swap the two"
            )
        for name in ("memory_per_task_bytes", "head_memory_bytes"):
            if not _MIN_BYTES <= getattr(self, name) < 2**50:
                raise UserError(f"{name} of a RayJob is {getattr(self, name)}", f"give bytes, at least {_MIN_BYTES}")
        if not self.entrypoint or not self.entrypoint[0]:
            raise UserError("the RayJob has no command to run", "give the trainer's command line")
        for argument in self.entrypoint:
            # Kubernetes expands $(NAME) in what KubeRay makes of it, and drops one of two dollars.
            if set(argument) & {"$", "\0", "\n"}:
                raise UserError(
                    f"{argument!r} has a character that does not survive its way to the cluster",
                    "give paths and values without a dollar sign and without line breaks",
                )
        for variable, value in self.env.items():
            if not _VARIABLE.fullmatch(variable) or "\0" in value:
                raise UserError(f"{variable!r} is no environment variable", "letters, digits and underscores")
            if variable == "RAY_ADDRESS" or variable.startswith("RAY_AUTH_"):
                raise UserError(f"KubeRay sets {variable} itself", "leave it out of the RayJob's env")


def _matches(value: str, pattern: re.Pattern[str], what: str, allowed: str, longest: int) -> None:
    if len(value) > longest or not pattern.fullmatch(value):
        raise UserError(f"{value!r} cannot be the {what}", f"at most {longest} characters: {allowed}")
