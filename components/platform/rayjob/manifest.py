"""The RayJob that runs a training on a cluster: KubeRay starts a Ray cluster, runs the trainer on its head, ends both.

k8s/base has the same RayJob as YAML, to read and to start manually; tests check that the two agree.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from components.platform.rayjob.ray_cluster import PART_OF, cluster_spec, submitter_template
from components.platform.rayjob.spec import RayJobSpec
from components.platform.storage.digests import json_digest

API_VERSION = "ray.io/v1"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
RUN_LABEL = "pipeline/runid"
"""Label with the ID of the run, as KFP gives it to the pods of a run."""
_SUBMITTER_RETRIES = 10
"""Submitters that may be lost before the attempt fails; each ends with its head, too. KubeRay's default is 2."""


def job_name(identity: Mapping[str, str], prefix: str = "ppo") -> str:
    """Return the RayJob name of a training, which depends on `identity` (root directory, inputs, settings) only."""
    return f"{prefix}-{json_digest(dict(identity))[:20]}"


def rayjob(spec: RayJobSpec) -> dict[str, Any]:
    """Return the manifest, which Kubernetes accepts as JSON or YAML."""
    more_labels = {RUN_LABEL: spec.run_id, QUEUE_LABEL: spec.queue}
    labels = PART_OF | {name: value for name, value in more_labels.items() if value}
    return {
        "apiVersion": API_VERSION,
        "kind": "RayJob",
        "metadata": {"name": spec.name, "namespace": spec.namespace, "labels": labels},
        "spec": {
            # Two shells parse this, KubeRay's and the job supervisor's; `ray job submit` quotes for the second.
            "entrypoint": shlex.join(spec.entrypoint),
            # A separate pod submits the job and follows its log, so that `kubectl logs` shows the driver's output.
            "submissionMode": "K8sJobMode",
            "submitterPodTemplate": submitter_template(spec),
            "submitterConfig": {"backoffLimit": _SUBMITTER_RETRIES},
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": spec.ttl_s,
            "preRunningDeadlineSeconds": spec.start_limit_s,
            "activeDeadlineSeconds": spec.deadline_s,
            "backoffLimit": spec.retries,
            "rayClusterSpec": cluster_spec(spec),
        },
    }
