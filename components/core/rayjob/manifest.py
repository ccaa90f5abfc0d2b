"""The RayJob that runs PPO on a cluster: KubeRay starts a Ray cluster for it, runs the trainer on its head, ends both.

k8s/base has it as YAML, for people to read and to start by hand; the tests keep the two the same.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from typing import Any

from components.core.rayjob.ray_cluster import PART_OF, cluster_spec, submitter_template
from components.core.rayjob.spec import RayJobSpec

API_VERSION = "ray.io/v1"


def job_name(identity: Mapping[str, str], prefix: str = "ppo") -> str:
    """The name of the RayJob for a training: the same for the same `identity` (root directory, inputs, settings)."""
    text = json.dumps(dict(identity), sort_keys=True).encode()
    return f"{prefix}-{hashlib.sha256(text).hexdigest()[:20]}"


def rayjob(spec: RayJobSpec) -> dict[str, Any]:
    """The document, as Kubernetes takes it in JSON or YAML."""
    return {
        "apiVersion": API_VERSION,
        "kind": "RayJob",
        "metadata": {"name": spec.name, "namespace": spec.namespace, "labels": dict(PART_OF)},
        "spec": {
            # Twice through a shell, KubeRay's and the job supervisor's; `ray job submit` quotes for the second.
            "entrypoint": shlex.join(spec.entrypoint),
            # A pod of its own submits the job and follows its log: the way to the driver's output by `kubectl logs`.
            "submissionMode": "K8sJobMode",
            "submitterPodTemplate": submitter_template(spec),
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": spec.ttl_s,
            "preRunningDeadlineSeconds": spec.start_limit_s,
            "activeDeadlineSeconds": spec.deadline_s,
            "backoffLimit": spec.retries,
            "rayClusterSpec": cluster_spec(spec),
        },
    }
