"""The admission policy of k8s/base on a real Kubernetes with KubeRay's CRDs, which MLGO_TEST_KUBE_CONTEXT names.

`kubectl apply -k k8s/base` comes first. Requests are dry runs of the server, which stores nothing.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
import yaml

from components.platform.rayjob.manifest import rayjob
from components.platform.rayjob.spec import RayJobSpec
from tests.support.programs import program

CONTEXT = os.environ.get("MLGO_TEST_KUBE_CONTEXT", "")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not CONTEXT, reason="needs a Kubernetes, see MLGO_TEST_KUBE_CONTEXT in docs/CONTRIBUTING.md"),
]

Job = dict[str, Any]


@cache
def values() -> dict[str, str]:
    command = ["get", "configmap", "values", "--namespace", "mlgo", "--output", "json"]
    return dict(json.loads(kubectl(*command).stdout)["data"])


def kubectl(*arguments: str, document: Job | None = None) -> subprocess.CompletedProcess[str]:
    command = [str(program("kubectl")), "--context", CONTEXT, *arguments]
    text = yaml.safe_dump(document) if document else None
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)


def create(document: Job) -> subprocess.CompletedProcess[str]:
    """Ask as the account of a step, whose token a recipe's build can read."""
    account = "system:serviceaccount:mlgo:mlgo-steps"
    return kubectl("create", "--dry-run=server", "--as", account, "--filename", "-", document=document)


def training(**settings: Any) -> Job:
    spec = {"name": "ppo-admission", "namespace": "mlgo", "image": values()["cluster_image"], **settings}
    return rayjob(RayJobSpec(entrypoint=("mlgo", "ppo"), **spec))


@pytest.mark.parametrize("settings", [{}, {"s3_credentials_secret": "mlgo-s3"}, {"spot": ("label", "value")}])
def test_training_of_the_step_is_admitted(settings: Job) -> None:
    done = create(training(**settings))
    assert done.returncode == 0, done.stderr


def head(job: Job) -> Job:
    return job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]


def worker(job: Job) -> Job:
    return job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["template"]["spec"]


def submitter(job: Job) -> Job:
    return job["spec"]["submitterPodTemplate"]["spec"]


def cluster(job: Job) -> Job:
    return job["spec"]["rayClusterSpec"]


def container(of: Callable[[Job], Job], **fields: Any) -> Callable[[Job], Any]:
    return lambda job: of(job)["containers"][0].update(copy.deepcopy(fields))


def pod(of: Callable[[Job], Job], **fields: Any) -> Callable[[Job], Any]:
    return lambda job: of(job).update(copy.deepcopy(fields))


def volume(of: Callable[[Job], Job], **source: Any) -> Callable[[Job], Any]:
    return lambda job: of(job)["volumes"].append({"name": "other", **copy.deepcopy(source)})


SECRET = {"secretKeyRef": {"name": "mlgo-notify", "key": "url"}}
SIDECAR = {"name": "other", "image": "registry.example/other@sha256:" + "0" * 64}
FORBIDDEN: dict[str, Callable[[Job], Any]] = {
    **{f"account of the {of.__name__}": pod(of, serviceAccountName="mlgo-retrain") for of in (head, worker, submitter)},
    "no account": lambda job: submitter(job).pop("serviceAccountName"),
    "old name of the account": pod(worker, serviceAccount="default"),
    "token": pod(worker, automountServiceAccountToken=True),
    **{
        f"Secret as a volume of the {of.__name__}": volume(of, secret={"secretName": "mlgo-notify"})
        for of in (head, worker, submitter)
    },
    "projected Secret": volume(head, projected={"sources": [{"secret": {"name": "mlgo-notify"}}]}),
    "Secret next to a token": volume(
        worker, projected={"sources": [{"serviceAccountToken": {"path": "t"}}, {"secret": {"name": "mlgo-notify"}}]}
    ),
    "projected ConfigMap": volume(head, projected={"sources": [{"configMap": {"name": "values"}}]}),
    "directory of the node": volume(worker, hostPath={"path": "/"}),
    "claim": volume(worker, persistentVolumeClaim={"claimName": "data"}),
    "driver of volumes": volume(worker, csi={"driver": "secrets-store.csi.k8s.io", "readOnly": True}),
    "ephemeral claim": volume(worker, ephemeral={"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}),
    **{
        f"Secret as a variable of the {of.__name__}": container(of, env=[{"name": "URL", "valueFrom": SECRET}])
        for of in (head, worker, submitter)
    },
    "Secret as variables": container(worker, envFrom=[{"secretRef": {"name": "mlgo-notify"}}]),
    "Secret of the autoscaler": lambda job: cluster(job)["autoscalerOptions"].update(
        env=[{"name": "URL", "valueFrom": SECRET}]
    ),
    "Secrets of the autoscaler": lambda job: cluster(job)["autoscalerOptions"].update(
        envFrom=[{"secretRef": {"name": "mlgo-notify"}}]
    ),
    **{f"image of the {of.__name__}": container(of, image=SIDECAR["image"]) for of in (head, worker, submitter)},
    "image by tag": lambda job: head(job)["containers"][0].update(
        image=values()["cluster_image"].split("@")[0] + ":latest"
    ),
    "image with a longer name": lambda job: head(job)["containers"][0].update(
        image=values()["cluster_image"].replace("@", "-other@")
    ),
    "image of the autoscaler": lambda job: cluster(job)["autoscalerOptions"].update(image=SIDECAR["image"]),
    "sidecar": lambda job: worker(job)["containers"].append(SIDECAR),
    "container before": pod(submitter, initContainers=[SIDECAR]),
    "network of the node": pod(worker, hostNetwork=True),
    "processes of the node": pod(head, hostPID=True),
    "memory of the node": pod(submitter, hostIPC=True),
    "chosen node": pod(worker, nodeName="node"),
    "priority of the system": pod(worker, priorityClassName="system-node-critical"),
    "privileged": container(worker, securityContext={"privileged": True}),
    "privileged autoscaler": lambda job: cluster(job)["autoscalerOptions"].update(securityContext={"privileged": True}),
    "more privileges": container(submitter, securityContext={"allowPrivilegeEscalation": True}),
    "port of the node": container(head, ports=[{"containerPort": 8265, "hostPort": 8265}]),
    "load balancer": lambda job: cluster(job)["headGroupSpec"].update(serviceType="LoadBalancer"),
    "port of all nodes": lambda job: cluster(job)["headGroupSpec"].update(serviceType="NodePort"),
    "service of its own": lambda job: cluster(job)["headGroupSpec"].update(headService={"spec": {"type": "NodePort"}}),
    "ingress": lambda job: cluster(job)["headGroupSpec"].update(enableIngress=True),
    "no token": lambda job: cluster(job).update(authOptions={"mode": "disabled"}),
    "no authentication": lambda job: cluster(job).pop("authOptions"),
    "token of another Secret": lambda job: cluster(job)["authOptions"].update(secretName="mlgo-notify"),
    "password in a Secret": lambda job: cluster(job).update(
        gcsFaultToleranceOptions={"redisAddress": "r", "redisPassword": {"valueFrom": SECRET}}
    ),
    "another cluster": lambda job: job["spec"].update(clusterSelector={"ray.io/cluster": "ray"}),
    "too many workers": lambda job: cluster(job)["workerGroupSpecs"][0].update(maxReplicas=10**6),
    "many hosts a worker": lambda job: cluster(job)["workerGroupSpecs"][0].update(numOfHosts=10**6),
    "two groups": lambda job: cluster(job)["workerGroupSpecs"].append(
        {**copy.deepcopy(cluster(job)["workerGroupSpecs"][0]), "groupName": "more"}
    ),
}


@pytest.mark.parametrize("change", FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_step_cannot_start_other_pods(change: Callable[[Job], Any]) -> None:
    job = training()
    change(job)
    done = create(job)
    assert done.returncode == 1 and "ValidatingAdmissionPolicy 'mlgo-ray-clusters'" in done.stderr, done.stderr


@pytest.mark.parametrize("change", ["Secret as a volume of the worker", "account of the head"])
def test_autoscaler_cannot_change_its_cluster(change: str) -> None:
    """Its token may patch RayClusters."""
    job = training()
    FORBIDDEN[change](job)
    document = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "ray-admission", "namespace": "mlgo"},
        "spec": job["spec"]["rayClusterSpec"],
    }
    done = kubectl("create", "--dry-run=server", "--filename", "-", document=document)
    assert done.returncode == 1 and "'mlgo-ray-clusters'" in done.stderr, done.stderr


@pytest.fixture
def waiting_pod() -> Iterator[str]:
    name = f"admission-{os.getpid()}"
    spec = copy.deepcopy(submitter(training()))
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "mlgo"},
        "spec": {**spec, "schedulingGates": [{"name": "example.com/never"}]},
    }
    done = kubectl("create", "--filename", "-", document=document)
    assert done.returncode == 0, done.stderr
    yield name
    kubectl("delete", "pod", "--namespace", "mlgo", name)


@pytest.mark.parametrize(
    ("patch", "admitted"),
    [
        ({"metadata": {"annotations": {"ray.io/size": "1"}}}, True),
        ({"metadata": {"labels": {"app.kubernetes.io/name": "retrain-check"}}}, False),
        ({"spec": {"containers": [{"name": "ray-job-submitter", "image": SIDECAR["image"]}]}}, False),
        ({"spec": {"activeDeadlineSeconds": 1}}, False),
    ],
)
def test_autoscaler_changes_only_annotations_of_pods(waiting_pod: str, patch: Job, admitted: bool) -> None:
    """Has the rights of everybody, under the autoscaler's name."""
    names = ["--as", "system:serviceaccount:mlgo:mlgo-ray", "--as-group", "system:masters"]
    command = ["patch", "pod", waiting_pod, "--namespace", "mlgo", "--dry-run=server", "--patch", json.dumps(patch)]
    done = kubectl(*command, *names)
    assert (done.returncode == 0) is admitted and ("'mlgo-ray-patches'" in done.stderr) is not admitted, done.stderr


@pytest.mark.parametrize("resource", ["pods", "rayclusters", "secrets", "services", "jobs.batch"])
@pytest.mark.parametrize("account", ["mlgo-steps", "mlgo-ray", "mlgo-retrain"])
def test_accounts_create_only_rayjobs(account: str, resource: str) -> None:
    user = f"system:serviceaccount:mlgo:{account}"
    done = kubectl("auth", "can-i", "create", resource, "--namespace", "mlgo", "--as", user)
    assert done.stdout.strip() == "no", done.stdout + done.stderr


@pytest.mark.parametrize("verb", ["get", "list", "watch"])
def test_steps_read_no_other_secret(verb: str) -> None:
    user = "system:serviceaccount:mlgo:mlgo-steps"
    done = kubectl("auth", "can-i", verb, "secrets/mlgo-notify", "--namespace", "mlgo", "--as", user)
    assert done.stdout.strip() == "no", done.stdout + done.stderr
