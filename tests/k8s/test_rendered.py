"""What `kubectl apply -k` would apply: valid as a whole, and the RayJob is the one that the PPO step makes."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from components.ppo.rayjob import rayjob
from components.ppo.rayjob_spec import GKE_SPOT, RayJobSpec
from components.ppo.submit import _collection
from tests.crd import FILES, check, needs_schemas

K8S = Path(__file__).parents[2] / "k8s"
KUBECTL = shutil.which("kubectl")
VERSION = "1.31"
IMAGE = "mlgo-cluster@sha256:" + "0" * 64
SPECS: dict[str, dict[str, Any]] = {
    "base": {},
    "overlays/gke": {"spot": GKE_SPOT},
    "overlays/plain": {"credentials_secret": "mlgo-credentials"},
}
"""What the PPO step would be told of each cluster."""

pytestmark = [
    pytest.mark.skipif(KUBECTL is None, reason="kubectl, which renders kustomizations, is not installed"),
    pytest.mark.parametrize("place", SPECS),
]


@cache
def rendered(place: str) -> tuple[dict[str, Any], ...]:
    command = [str(KUBECTL), "kustomize", str(K8S / place)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def one(place: str, kind: str, name: str) -> dict[str, Any]:
    (found,) = [
        copy.deepcopy(document)
        for document in rendered(place)
        if (document["kind"], document["metadata"]["name"]) == (kind, name)
    ]
    return found


def all_of(place: str, kind: str) -> list[dict[str, Any]]:
    return [document for document in rendered(place) if document["kind"] == kind]


def test_every_overlay_is_here(place: str) -> None:
    assert set(SPECS) == {path.parent.relative_to(K8S).as_posix() for path in K8S.rglob("kustomization.yaml")}


def test_kubernetes_takes_it(place: str) -> None:
    for document in rendered(place):
        if not document["apiVersion"].startswith("ray.io/"):
            kubernetes_validate.validate(document, VERSION, strict=True)
        assert document["kind"] == "Namespace" or document["metadata"]["namespace"] == "mlgo"


@needs_schemas
def test_KubeRay_takes_it(place: str) -> None:
    ours = [document for document in rendered(place) if document["apiVersion"].startswith("ray.io/")]
    assert {document["kind"] for document in ours} == set(FILES)
    for document in ours:
        check(document)


def test_the_RayJob_is_what_the_step_submits(place: str) -> None:
    found = one(place, "RayJob", "ppo")
    assert found["spec"].pop("suspend") is True
    spec = RayJobSpec("ppo", "mlgo", IMAGE, tuple(found["spec"]["entrypoint"].split()), **SPECS[place])
    assert found == rayjob(spec)


def test_the_standing_cluster_is_the_RayJobs(place: str) -> None:
    cluster = one(place, "RayCluster", "ray")["spec"]
    assert cluster.pop("suspend") is True
    assert cluster == one(place, "RayJob", "ppo")["spec"]["rayClusterSpec"]


def test_every_image_is_one_by_digest(place: str) -> None:
    images = re.findall(r"\bimage: (\S+)", yaml.safe_dump_all(rendered(place)))
    assert len(images) >= 6
    for image in images:
        assert re.fullmatch(r"[^\s@:]+@sha256:[0-9a-f]{64}", image), image


def test_the_steps_may_do_what_they_ask_for(place: str) -> None:
    """And every other service account may not."""
    spec = RayJobSpec("ppo", "mlgo", IMAGE, ("mlgo",))
    group, _version, _namespaces, namespace, resource = _collection(spec).removeprefix("/apis/").split("/")
    role = one(place, "Role", "mlgo-run-ray-jobs")
    (rule,) = [rule for rule in role["rules"] if resource in rule["resources"]]
    assert rule["apiGroups"] == [group] and {"create", "get", "watch", "delete"} <= set(rule["verbs"])
    (logs,) = [rule for rule in role["rules"] if "pods/log" in rule["resources"]]
    assert "pods" in logs["resources"] and {"get", "list"} <= set(logs["verbs"])
    binding = one(place, "RoleBinding", "mlgo-run-ray-jobs")
    assert binding["roleRef"]["name"] == role["metadata"]["name"] and role["metadata"]["namespace"] == namespace
    assert [subject["name"] for subject in binding["subjects"]] == ["mlgo-steps"]
    accounts = {account["metadata"]["name"]: account for account in all_of(place, "ServiceAccount")}
    assert "automountServiceAccountToken" not in accounts["mlgo-steps"]
    assert accounts["mlgo-ray"]["automountServiceAccountToken"] is False
    for account in accounts.values():
        annotated = "iam.gke.io/gcp-service-account" in account["metadata"].get("annotations", {})
        assert annotated is (place == "overlays/gke")


def labels_of_pods(place: str) -> dict[str, dict[str, str]]:
    """What KubeRay adds to our labels (labelPod), and what we give."""
    job = one(place, "RayJob", "ppo")["spec"]
    cluster = job["rayClusterSpec"]
    node = {"ray.io/is-ray-node": "yes"}
    head = cluster["headGroupSpec"]["template"]["metadata"]["labels"]
    workers = cluster["workerGroupSpecs"][0]["template"]["metadata"]["labels"]
    return {
        "head": {**head, **node, "ray.io/node-type": "head"},
        "worker": {**workers, **node, "ray.io/node-type": "worker"},
        "submitter": job["submitterPodTemplate"]["metadata"]["labels"],
        "step": {"workflows.argoproj.io/workflow": "training-x"},
        "operator": {"app.kubernetes.io/component": "kuberay-operator"},
        "stranger": {"app": "other"},
    }


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    assert set(selector) <= {"matchLabels", "matchExpressions"}
    for expression in selector.get("matchExpressions", ()):
        assert expression["operator"] == "Exists"
        if expression["key"] not in labels:
            return False
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def allowed(place: str, source: str, target: str, port: int, direction: str) -> bool:
    """By the network policies: whether `target` takes TCP from `source` (ingress), or `source` may send it (egress)."""
    labels = labels_of_pods(place)
    subject, other = (target, source) if direction == "ingress" else (source, target)
    policies = [
        policy["spec"]
        for policy in all_of(place, "NetworkPolicy")
        if direction.capitalize() in policy["spec"]["policyTypes"]
        and matches(policy["spec"]["podSelector"], labels[subject])
    ]
    if not policies:
        return True
    for policy in policies:
        for rule in policy.get(direction, ()):
            ports = {item["port"] for item in rule.get("ports", ()) if item["protocol"] == "TCP"}
            peers = rule.get("from" if direction == "ingress" else "to")
            selectors = [{}] if peers is None else [peer["podSelector"] for peer in peers if "podSelector" in peer]
            is_open = not rule.get("ports") or port in ports
            if is_open and any(matches(selector, labels[other]) for selector in selectors):
                return True
    return False


@pytest.mark.parametrize(
    ("source", "target", "port", "open_"),
    [
        ("worker", "head", 6379, True), ("head", "worker", 10005, True), ("worker", "worker", 10005, True),
        ("submitter", "head", 8265, True), ("step", "head", 8265, True), ("operator", "head", 8265, True),
        ("submitter", "head", 6379, False), ("step", "head", 6379, False), ("operator", "head", 6379, False),
        ("stranger", "head", 8265, False), ("stranger", "head", 6379, False), ("stranger", "worker", 10005, False),
        ("step", "worker", 10005, False), ("submitter", "worker", 8265, False), ("stranger", "submitter", 80, False),
    ],
)  # fmt: skip
def test_who_reaches_whom(place: str, source: str, target: str, port: int, open_: bool) -> None:
    through = allowed(place, source, target, port, "ingress") and allowed(place, source, target, port, "egress")
    assert through is open_


@pytest.mark.parametrize(
    ("source", "port", "open_"),
    [("worker", 443, True), ("head", 443, True), ("head", 6443, True), ("worker", 6443, False), ("worker", 22, False),
     ("worker", 53, True), ("submitter", 53, True), ("submitter", 443, False)],
)  # fmt: skip
def test_what_of_the_world_is_reached(place: str, source: str, port: int, open_: bool) -> None:
    assert allowed(place, source, "stranger", port, "egress") is open_


def test_no_head_is_ever_evicted(place: str) -> None:
    (budget,) = all_of(place, "PodDisruptionBudget")
    labels = labels_of_pods(place)
    assert matches(budget["spec"]["selector"], labels["head"])
    assert not matches(budget["spec"]["selector"], labels["worker"])
    # An integer: of pods whose controller has no scale, as RayCluster, Kubernetes takes nothing else.
    assert isinstance(budget["spec"]["minAvailable"], int) and budget["spec"]["minAvailable"] > 100
