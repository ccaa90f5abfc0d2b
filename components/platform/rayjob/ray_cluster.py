"""The Ray cluster of a RayJob: a head that compiles nothing, and a group of workers that KubeRay's autoscaler sizes.

In a queue of Kueue the number of workers is fixed: its webhook refuses RayJobs with an autoscaler.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from components.platform.rayjob.spec import RAY_VERSION, RayJobSpec
from components.platform.workers.settings import NODE_SETTINGS, SUBREAPER

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Directory in which Kubernetes mounts a pod's service account token and its API server's CA certificate."""
PART_OF = {"app.kubernetes.io/part-of": "mlgo"}
"""Label of every pod; k8s/base's network policy and disruption budget select by it."""
CREDENTIALS = "/var/run/secrets/mlgo"
_AGENT_PORT = 52365
_USER = 1000
_MIB = 2**20
_OVERHEAD_BYTES = 1024 * _MIB  # raylet, its agents, and a Python interpreter for each task
_HEAD_STORE_BYTES = 1024 * _MIB  # policies and logs of modules in transit
_WORKER_STORE_BYTES = 512 * _MIB
_SUBMITTER_BYTES = 512 * _MIB
_AUTOSCALER_BYTES = 512 * _MIB
_IDLE_MILLICORES = 100
"""Request of a container that needs more only when it starts: the autoscaler and the submitter."""
_IDLE_S = 300  # longer than a validation and an update of the policy, during which workers are idle


def cluster_spec(spec: RayJobSpec) -> dict[str, Any]:
    """Return the RayClusterSpec."""
    tasks_bytes = spec.cpus_per_worker * spec.memory_per_task_bytes
    # The autoscaler patches the RayCluster. The trainer next to it, which unpickles what workers send, gets no token.
    api = {"name": "kubernetes-api", "projected": _service_account()}
    # The trainer computes in turn with the workers, so the head requests half of its processors, as a step does.
    head_cpu = _resources(1000 * spec.head_cpus, spec.head_memory_bytes, 500 * spec.head_cpus)
    head = _pod(spec, "ray-head", head_cpu, _HEAD_STORE_BYTES, *([] if spec.queue else [api]))
    # Evicting the head ends the training, so scaling down must not evict it; k8s/base's disruption budget enforces it.
    head["metadata"]["annotations"] = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    workers_bytes = tasks_bytes + _WORKER_STORE_BYTES + _OVERHEAD_BYTES
    workers = _pod(spec, "ray-worker", _resources(1000 * spec.cpus_per_worker, workers_bytes), _WORKER_STORE_BYTES)
    if spec.spot:
        label, value = spec.spot
        expression = {"key": label, "operator": "NotIn", "values": [value]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        head["spec"]["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
        workers["spec"]["nodeSelector"] = {label: value}
        toleration = {"key": label, "operator": "Equal", "value": value, "effect": "NoSchedule"}
        workers["spec"]["tolerations"] = [toleration]
    autoscaler = {
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {
            "version": "v2",
            "upscalingMode": "Default",
            "idleTimeoutSeconds": _IDLE_S,
            "resources": _resources(500, _AUTOSCALER_BYTES, _IDLE_MILLICORES),
            "securityContext": _container_security(),
            "volumeMounts": [
                {"name": "tmp", "mountPath": "/tmp"},
                {"name": "kubernetes-api", "mountPath": str(SERVICE_ACCOUNT), "readOnly": True},
            ],
        },
    }
    least = spec.max_workers if spec.queue else spec.min_workers
    return {
        "rayVersion": RAY_VERSION,
        # KubeRay creates a token for each cluster and passes it to the cluster's pods and the submitter.
        "authOptions": {"mode": "token"},
        **({} if spec.queue else autoscaler),
        "headGroupSpec": {
            "serviceType": "ClusterIP",
            "rayStartParams": {"num-cpus": "0", "object-store-memory": str(_HEAD_STORE_BYTES)},
            "template": head,
        },
        "workerGroupSpecs": [
            {
                "groupName": "compile",
                "replicas": least,
                "minReplicas": least,
                "maxReplicas": spec.max_workers,
                "rayStartParams": {
                    "num-cpus": str(spec.cpus_per_worker),
                    # Memory that tasks may request. By default KubeRay offers the whole limit, and Linux kills.
                    "memory": str(tasks_bytes),
                    "object-store-memory": str(_WORKER_STORE_BYTES),
                },
                "template": workers,
            }
        ],
    }


def submitter_template(spec: RayJobSpec) -> dict[str, Any]:
    """Return the pod template of the Job that submits the job and follows its log; KubeRay adds the command."""
    return {
        "metadata": {"labels": {**PART_OF, "app.kubernetes.io/component": "submitter"}},
        "spec": {
            "restartPolicy": "Never",
            "serviceAccountName": spec.service_account,
            "automountServiceAccountToken": False,
            "securityContext": _pod_security(),
            "containers": [
                {
                    "name": "ray-job-submitter",
                    "image": spec.image,
                    "resources": _resources(500, _SUBMITTER_BYTES, _IDLE_MILLICORES),
                    "securityContext": _container_security(),
                    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                }
            ],
            "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}],
        },
    }


def _pod(
    spec: RayJobSpec, name: str, resources: dict[str, Any], store_bytes: int, *more_volumes: dict[str, Any]
) -> dict[str, Any]:
    env = {**NODE_SETTINGS, **spec.env}
    if name == "ray-head":
        # With SIGCHLD ignored, Ray's job supervisor there takes each end of the trainer for a success.
        env[SUBREAPER] = "false"
    mounts: list[dict[str, Any]] = [{"name": "tmp", "mountPath": "/tmp"}, {"name": "shm", "mountPath": "/dev/shm"}]
    volumes: list[dict[str, Any]] = [
        {"name": "tmp", "emptyDir": {"sizeLimit": "32Gi"}},  # corpus, compilers, Ray's logs and what it spills
        # Counts as the container's memory; slightly larger than Ray's store, which has a header.
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": _quantity(store_bytes + 64 * _MIB)}},
        *more_volumes,
    ]
    if spec.credentials_secret:
        env["GOOGLE_APPLICATION_CREDENTIALS"] = f"{CREDENTIALS}/key.json"
        mounts.append({"name": "credentials", "mountPath": CREDENTIALS, "readOnly": True})
        volumes.append({"name": "credentials", "secret": {"secretName": spec.credentials_secret, "defaultMode": 0o440}})
    container = {
        "name": name,
        "image": spec.image,
        "env": [{"name": key, "value": value} for key, value in sorted(env.items())],
        "resources": resources,
        "securityContext": _container_security(),
        "volumeMounts": mounts,
        # KubeRay's own probes run wget, which our images lack, unless the operator is a recent one.
        "livenessProbe": _probe(failures=12),
        "readinessProbe": _probe(failures=3),
    }
    if spec.s3_credentials_secret:
        container["envFrom"] = [{"secretRef": {"name": spec.s3_credentials_secret}}]  # `env` takes precedence
    return {
        "metadata": {"labels": dict(PART_OF)},
        "spec": {
            # Ray regards a node that restarts in its pod as a new one; the autoscaler (v2) makes a new pod instead.
            "restartPolicy": "Never",
            "serviceAccountName": spec.service_account,
            "automountServiceAccountToken": False,
            "securityContext": _pod_security(),
            "containers": [container],
            "volumes": volumes,
        },
    }


def _service_account() -> dict[str, Any]:
    """Return the volume that Kubernetes would otherwise mount in every container of the pod."""
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    return {
        "defaultMode": 0o440,
        "sources": [
            {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [namespace]}},
        ],
    }


def _probe(failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": "/api/healthz", "port": _AGENT_PORT},
        "initialDelaySeconds": 20,
        "periodSeconds": 10,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _resources(millicores: int, memory_bytes: int, requested_millicores: int | None = None) -> dict[str, Any]:
    """Return requests and limits, which are equal for memory, so that no other pod is killed for what it lacks."""
    memory = _quantity(memory_bytes)
    return {
        "requests": {"cpu": _processors(requested_millicores or millicores), "memory": memory},
        "limits": {"cpu": _processors(millicores), "memory": memory},
    }


def _processors(millicores: int) -> str:
    return f"{millicores}m" if millicores % 1000 else str(millicores // 1000)


def _quantity(count: int) -> str:
    return f"{count // _MIB}Mi" if count % _MIB == 0 else str(count)


def _pod_security() -> dict[str, Any]:
    ids = {"runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER}
    return {"runAsNonRoot": True, **ids, "seccompProfile": {"type": "RuntimeDefault"}}


def _container_security() -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
