"""The parameters of a RayJob and their validation."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from components.platform.errors import UserError

RAY_VERSION = "2.60.0"
"""Ray version of the image. KubeRay derives health checks and authentication from it without checking the image."""
GKE_SPOT = ("cloud.google.com/gke-spot", "true")
"""Label and taint of GKE's spot nodes."""
NAMESPACE = "mlgo"
"""Namespace of k8s/base, which has the service accounts, rights and network policies of RayJobs."""
TRAINER = ("mlgo", "ppo")
"""The trainer's program in the image mlgo-cluster, whose `python` and `ray` are those of the nodes."""
ON_HEAD = "ray:auto"
"""--workers of a trainer that runs on a cluster's head."""
S3_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
"""Keys that a Secret with credentials for S3 must have."""

MAX_NAME = 47  # KubeRay appends suffixes: up to 53 for the cluster's name, up to 63 for services
_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")  # RFC 1035, which KubeRay requires
DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""A label of RFC 1123: a namespace. Any object may have such a name."""
SUBDOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""A subdomain of RFC 1123: the name of most objects of Kubernetes."""
_RUN = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?")
_DIGEST = re.compile(r"[^\s@]+@sha256:[0-9a-f]{64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MAX_INT32 = 2**31 - 1
_MIN_BYTES = 2**26


@dataclass(frozen=True)
class RayJobSpec:
    """The parameters that differ between trainings or between clusters. UserError for invalid values.

    name: see `job_name`. image: of head and workers, with a digest. entrypoint: the trainer's command line; its driver
    runs on the head, where RAY_ADDRESS is set, and may use `head_cpus` and `head_memory_bytes`.
    service_account: of head and workers; only the head's autoscaler gets its token, for the Kubernetes API.
    min_workers, max_workers: pods, each with `cpus_per_worker` parallel tasks of `memory_per_task_bytes`.
    queue: a LocalQueue of Kueue, which starts the RayJob when there is room for all `max_workers`.
    spot: label (and taint) of preemptible nodes: workers run only there, the head only elsewhere. None: no constraint.
    env: additional environment variables of every Ray container.
    credentials_secret: a Secret with `key.json`, a Google Cloud key, for clusters without workload identity.
    s3_credentials_secret: a Secret whose keys become environment variables, S3_VARIABLES and others of boto3, for `s3://`.
    retries: number of restarts with a new cluster after the driver or the head failed.
    run_id: of the KFP run whose step starts it; empty if a user does.
    ttl_s: lifetime of the cluster after the job. start_limit_s: for scheduling and pulling. deadline_s: in total.
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
    s3_credentials_secret: str = ""
    queue: str = ""
    retries: int = 1
    ttl_s: int = 60
    start_limit_s: int = 1800
    deadline_s: int = 72 * 3600
    run_id: str = ""

    def __post_init__(self) -> None:
        _matches(self.name, _LABEL, "name of a RayJob", "letters a-z, digits and hyphens, a letter first", MAX_NAME)
        _matches(self.namespace, DNS_LABEL, "namespace", "letters a-z, digits and hyphens", 63)
        _matches(self.service_account, SUBDOMAIN, "service account", "letters a-z, digits, hyphens and dots", 253)
        for secret in filter(None, (self.credentials_secret, self.s3_credentials_secret)):
            _matches(secret, SUBDOMAIN, "Secret", "letters a-z, digits, hyphens and dots", 253)
        if self.queue:
            _matches(self.queue, SUBDOMAIN, "queue", "letters a-z, digits, hyphens and dots", 63)
        if self.run_id:
            _matches(self.run_id, _RUN, "ID of a run", "letters, digits and hyphens", 63)
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
            # Kubernetes expands $(NAME) in KubeRay's command and replaces $$ by $.
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
