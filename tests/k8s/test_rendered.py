"""The manifests that `kubectl apply -k` applies are valid, and their RayJob equals the PPO step's."""

from __future__ import annotations

import copy
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest
import yaml

from components.platform.rayjob.manifest import rayjob
from components.platform.rayjob.ray_cluster import SERVICE_ACCOUNT
from components.platform.rayjob.spec import GKE_SPOT, RayJobSpec
from components.platform.rayjob.submit import _collection
from pipelines.cli.retrain import check as check_command
from pipelines.cli.retrain import submit as submit_command
from tests.support.crd import FILES, check, needs_schemas
from tests.support.programs import program

K8S = Path(__file__).parents[2] / "k8s"
KUBECTL = program("kubectl")
VERSION = "1.31"
IMAGE = "mlgo-cluster@sha256:" + "0" * 64
SPECS: dict[str, dict[str, Any]] = {
    "base": {},
    "overlays/gke": {"spot": GKE_SPOT},
    "overlays/plain": {"credentials_secret": "mlgo-credentials"},
}
"""Options of the PPO step for the cluster of each overlay."""

pytestmark = [
    pytest.mark.skipif(KUBECTL is None, reason="kubectl, which renders kustomizations, is not installed"),
    pytest.mark.parametrize("overlay_path", SPECS),
]


@cache
def render(overlay_path: str) -> tuple[dict[str, Any], ...]:
    command = [str(KUBECTL), "kustomize", str(K8S / overlay_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return tuple(yaml.safe_load_all(done.stdout))


def one(overlay_path: str, kind: str, name: str) -> dict[str, Any]:
    (resource,) = [
        copy.deepcopy(document)
        for document in render(overlay_path)
        if (document["kind"], document["metadata"]["name"]) == (kind, name)
    ]
    return resource


def all_of(overlay_path: str, kind: str) -> list[dict[str, Any]]:
    return [document for document in render(overlay_path) if document["kind"] == kind]


def test_all_overlays_are_tested(overlay_path: str) -> None:
    there = {path.parent.relative_to(K8S).as_posix() for path in K8S.rglob("kustomization.yaml")}
    assert set(SPECS) == {name for name in there if not name.startswith("components/")}


def test_manifest_is_valid_for_kubernetes(overlay_path: str) -> None:
    for document in render(overlay_path):
        if not document["apiVersion"].startswith("ray.io/"):
            kubernetes_validate.validate(document, VERSION, strict=True)
        assert document["kind"] == "Namespace" or document["metadata"]["namespace"] == "mlgo"


@needs_schemas
def test_manifest_is_valid_for_kuberay(overlay_path: str) -> None:
    ours = [document for document in render(overlay_path) if document["apiVersion"].startswith("ray.io/")]
    assert {document["kind"] for document in ours} == set(FILES)
    for document in ours:
        check(document)


def test_rayjob_equals_the_one_that_the_step_submits(overlay_path: str) -> None:
    job = one(overlay_path, "RayJob", "ppo")
    assert job["spec"].pop("suspend") is True
    spec = RayJobSpec("ppo", "mlgo", IMAGE, tuple(job["spec"]["entrypoint"].split()), **SPECS[overlay_path])
    assert job == rayjob(spec)


def test_raycluster_equals_that_of_the_rayjob(overlay_path: str) -> None:
    cluster = one(overlay_path, "RayCluster", "ray")["spec"]
    assert cluster.pop("suspend") is True
    assert cluster == one(overlay_path, "RayJob", "ppo")["spec"]["rayClusterSpec"]


def test_every_image_is_pinned_by_digest(overlay_path: str) -> None:
    images = re.findall(r"\bimage: (\S+)", yaml.safe_dump_all(render(overlay_path)))
    assert len(images) >= 6
    for image in images:
        assert re.fullmatch(r"[^\s@:]+@sha256:[0-9a-f]{64}", image), image


def rights(overlay_path: str) -> dict[str, set[tuple[str, str, str]]]:
    """Return (API group, resource, verb) of every role that is bound to a service account, by account."""
    granted_rights: dict[str, set[tuple[str, str, str]]] = {
        account["metadata"]["name"]: set() for account in all_of(overlay_path, "ServiceAccount")
    }
    for binding in all_of(overlay_path, "RoleBinding"):
        role = one(overlay_path, "Role", binding["roleRef"]["name"])
        granted = {
            (group, resource, verb)
            for rule in role["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        for subject in binding["subjects"]:
            granted_rights[subject["name"]] |= granted
    return granted_rights


def test_service_accounts_have_only_the_rights_they_use(overlay_path: str) -> None:
    assert not all_of(overlay_path, "ClusterRole") and not all_of(overlay_path, "ClusterRoleBinding")
    spec = RayJobSpec("ppo", "mlgo", IMAGE, ("mlgo",))
    group, _version, _namespace, resource = _collection(spec)
    of_kfp = {("argoproj.io", "workflowtaskresults", verb) for verb in ("create", "patch")}
    of_kfp |= {("", "configmaps", "get"), ("", "secrets", "get")}
    of_ppo = {(group, resource, verb) for verb in ("create", "get", "delete")}
    of_ppo |= {("", "pods", "list"), ("", "pods/log", "get")}
    assert rights(overlay_path) == {"mlgo-steps": of_kfp | of_ppo, "mlgo-ray": set(), "mlgo-retrain": set()}


def test_steps_read_only_the_secret_of_the_default_root(overlay_path: str) -> None:
    rules = [rule for role in all_of(overlay_path, "Role") for rule in role["rules"] if "secrets" in rule["resources"]]
    assert [rule["resourceNames"] for rule in rules] == [["mlpipeline-minio-artifact"]]


def test_daily_check_starts_without_secrets(overlay_path: str) -> None:
    """Where all artifacts are in s3://, there is no key of Google Cloud; a pod would wait for it for ever."""
    pod = one(overlay_path, "CronJob", "retrain-check")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert all(volume["secret"].get("optional") for volume in pod.get("volumes", ()) if "secret" in volume)


def test_token_is_mounted_only_where_the_api_is_called(overlay_path: str) -> None:
    """In steps, Argo and the PPO step call the API; in Ray's head, the autoscaler."""
    accounts = {account["metadata"]["name"]: account for account in all_of(overlay_path, "ServiceAccount")}
    mounted = {name for name, account in accounts.items() if account.get("automountServiceAccountToken", True)}
    assert mounted == {"mlgo-steps"}
    job, check = (
        one(overlay_path, "RayJob", "ppo")["spec"],
        one(overlay_path, "CronJob", "retrain-check")["spec"]["jobTemplate"],
    )
    cluster = job["rayClusterSpec"]
    head, worker = cluster["headGroupSpec"]["template"]["spec"], cluster["workerGroupSpecs"][0]["template"]["spec"]
    for pod in (head, worker, job["submitterPodTemplate"]["spec"], check["spec"]["template"]["spec"]):
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert str(SERVICE_ACCOUNT) not in [mount["mountPath"] for mount in container["volumeMounts"]]
    (mount,) = [m for m in cluster["autoscalerOptions"]["volumeMounts"] if m["mountPath"] == str(SERVICE_ACCOUNT)]
    (volume,) = [volume for volume in head["volumes"] if volume["name"] == mount["name"]]
    paths = [item["path"] for source in volume["projected"]["sources"] for item in _items(source)]
    assert sorted(paths) == ["ca.crt", "namespace", "token"] and mount["readOnly"] is True


def test_ray_requires_a_token_that_is_in_no_manifest(overlay_path: str) -> None:
    """KubeRay generates it, and sets the variables by which Ray reads it."""
    for cluster in (
        one(overlay_path, "RayCluster", "ray")["spec"],
        one(overlay_path, "RayJob", "ppo")["spec"]["rayClusterSpec"],
    ):
        assert cluster["authOptions"] == {"mode": "token"}
    text = yaml.safe_dump_all(d for d in render(overlay_path) if "Policy" not in d["kind"])
    assert (
        "RAY_AUTH" not in text
        and "auth_token" not in text
        and "Secret" not in {d["kind"] for d in render(overlay_path)}
    )


def _items(source: dict[str, Any]) -> list[dict[str, Any]]:
    """The files of one source of a projected volume."""
    (content,) = source.values()
    return list(content.get("items", [content]))


def test_service_accounts_have_google_identities_only_on_gke(overlay_path: str) -> None:
    for account in all_of(overlay_path, "ServiceAccount"):
        annotated = "iam.gke.io/gcp-service-account" in account["metadata"].get("annotations", {})
        assert annotated is (overlay_path == "overlays/gke")


@dataclass(frozen=True)
class Peer:
    """Something that packets come from or go to. namespace: empty for what is outside of the cluster."""

    namespace: str
    labels: dict[str, str]
    address: str


def peers(overlay_path: str) -> dict[str, Peer]:
    """Return pods and addresses by name: ours, with the labels that KubeRay, Argo and Kubernetes add, and others."""
    job = one(overlay_path, "RayJob", "ppo")["spec"]
    cluster = job["rayClusterSpec"]
    node = {"ray.io/is-ray-node": "yes"}
    head = cluster["headGroupSpec"]["template"]["metadata"]["labels"]
    workers = cluster["workerGroupSpecs"][0]["template"]["metadata"]["labels"]
    operator = {"app.kubernetes.io/component": "kuberay-operator"}
    check = one(overlay_path, "CronJob", "retrain-check")["spec"]["jobTemplate"]["spec"]["template"]["metadata"][
        "labels"
    ]
    return {
        "head": Peer("mlgo", {**head, **node, "ray.io/node-type": "head"}, "10.0.0.1"),
        "worker": Peer("mlgo", {**workers, **node, "ray.io/node-type": "worker"}, "10.0.0.2"),
        "submitter": Peer("mlgo", job["submitterPodTemplate"]["metadata"]["labels"], "10.0.0.3"),
        "step": Peer("mlgo", {"workflows.argoproj.io/workflow": "training-x"}, "10.0.0.4"),
        "check": Peer("mlgo", check, "10.0.0.5"),
        "neighbour": Peer("mlgo", {"app": "other"}, "10.0.0.6"),
        "operator": Peer("ray-system", operator, "10.0.1.1"),
        "impostor": Peer("default", operator, "10.0.1.2"),
        "stranger": Peer("default", {"app": "other"}, "10.0.1.3"),
        "step elsewhere": Peer("default", {"workflows.argoproj.io/workflow": "training-x"}, "10.0.1.4"),
        "dns": Peer("kube-system", {"k8s-app": "kube-dns"}, "10.0.2.1"),
        "kfp": Peer("kubeflow", {"app": "metadata-grpc-server"}, "10.0.3.1"),
        "api": Peer("", {}, "10.9.0.1"),
        "database": Peer("", {}, "192.168.1.1"),
        "public": Peer("", {}, "142.250.1.1"),
        "metadata": Peer("", {}, "169.254.169.254"),
    }


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    assert set(selector) <= {"matchLabels", "matchExpressions"}
    for expression in selector.get("matchExpressions", ()):
        value = labels.get(expression["key"])
        holds = {
            "Exists": value is not None,
            "In": value in expression.get("values", ()),
            "NotIn": value not in expression.get("values", ()),
        }
        if not holds[expression["operator"]]:
            return False
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def admits(rule: dict[str, Any], peer: Peer, policy_namespace: str) -> bool:
    """Return whether an entry of `from` or `to` matches the peer."""
    if block := rule.get("ipBlock"):
        assert set(rule) == {"ipBlock"}
        network, address = ip_network(block["cidr"]), ip_address(peer.address)
        return address in network and not any(address in ip_network(part) for part in block.get("except", ()))
    if "namespaceSelector" in rule:
        there = peer.namespace and matches(rule["namespaceSelector"], {"kubernetes.io/metadata.name": peer.namespace})
    else:
        there = peer.namespace == policy_namespace
    return bool(there) and matches(rule.get("podSelector", {}), peer.labels)


def allowed(overlay_path: str, source: str, target: str, port: int, direction: str) -> bool:
    """Return whether network policies let `target` accept TCP from `source` (ingress), or `source` send it (egress)."""
    peer_of = peers(overlay_path)
    subject, other = (
        (peer_of[target], peer_of[source]) if direction == "ingress" else (peer_of[source], peer_of[target])
    )
    policies = [
        policy["spec"]
        for policy in all_of(overlay_path, "NetworkPolicy")
        if direction.capitalize() in policy["spec"]["policyTypes"]
        and subject.namespace == policy["metadata"]["namespace"]
        and matches(policy["spec"]["podSelector"], subject.labels)
    ]
    if not policies:
        return True
    for policy in policies:
        for rule in policy.get(direction, ()):
            ports = {item["port"] for item in rule.get("ports", ()) if item["protocol"] == "TCP"}
            listed = rule.get("from" if direction == "ingress" else "to")
            is_open = not rule.get("ports") or port in ports
            if is_open and (listed is None or any(admits(entry, other, "mlgo") for entry in listed)):
                return True
    return False


def reaches(overlay_path: str, source: str, target: str, port: int) -> bool:
    return all(allowed(overlay_path, source, target, port, direction) for direction in ("ingress", "egress"))


def test_pods_without_policy_reach_only_dns(overlay_path: str) -> None:
    for other in peers(overlay_path):
        assert not reaches(overlay_path, other, "neighbour", 80)
        assert not any(reaches(overlay_path, "neighbour", other, port) for port in (80, 443, 6443, 8265))
        reachable = {"dns", "metadata"} if overlay_path == "overlays/gke" else {"dns"}
        assert reaches(overlay_path, "neighbour", other, 53) is (other in reachable)


@pytest.mark.parametrize(
    ("source", "target", "port", "open_"),
    [
        ("worker", "head", 6379, True),
        ("head", "worker", 10005, True),
        ("worker", "worker", 10005, True),
        ("submitter", "head", 8265, True),
        ("operator", "head", 8265, True),
        ("step", "head", 8265, False),
        ("step elsewhere", "head", 8265, False),
        ("check", "head", 8265, False),
        ("impostor", "head", 8265, False),
        ("neighbour", "head", 8265, False),
        ("stranger", "head", 8265, False),
        ("submitter", "head", 6379, False),
        ("step", "head", 6379, False),
        ("operator", "head", 6379, False),
        ("stranger", "head", 6379, False),
        ("stranger", "worker", 10005, False),
        ("step", "worker", 10005, False),
        ("submitter", "worker", 8265, False),
        ("stranger", "submitter", 80, False),
        ("stranger", "step", 8080, False),
        ("worker", "step", 8080, False),
        ("stranger", "check", 80, False),
    ],
)
def test_allowed_connections_between_pods(overlay_path: str, source: str, target: str, port: int, open_: bool) -> None:
    assert reaches(overlay_path, source, target, port) is open_


@pytest.mark.parametrize(
    ("source", "target", "port", "open_"),
    [
        ("worker", "dns", 53, True),
        ("submitter", "dns", 53, True),
        ("step", "dns", 53, True),
        ("worker", "stranger", 53, False),
        ("step", "public", 53, False),
        ("worker", "public", 443, True),
        ("head", "public", 443, True),
        ("check", "public", 443, True),
        ("step", "public", 443, True),
        ("step", "public", 80, True),
        ("submitter", "public", 443, False),
        ("worker", "public", 80, False),
        ("worker", "public", 22, False),
        ("step", "public", 22, False),
        ("worker", "stranger", 443, False),
        ("worker", "database", 443, False),
        ("check", "database", 443, False),
        ("step", "stranger", 80, False),
        ("step", "database", 5432, False),
        ("head", "api", 6443, True),
        ("step", "api", 6443, True),
        ("head", "api", 443, True),
        ("worker", "api", 443, False),
        ("worker", "api", 6443, False),
        ("check", "api", 443, False),
        ("submitter", "api", 443, False),
        ("step", "kfp", 8080, True),
        ("step", "kfp", 3306, False),
        ("worker", "kfp", 8080, False),
    ],
)
def test_allowed_connections_to_other_addresses(
    overlay_path: str, source: str, target: str, port: int, open_: bool
) -> None:
    assert allowed(overlay_path, source, target, port, "egress") is open_


@pytest.mark.parametrize("source", ["head", "worker", "step", "check", "submitter"])
def test_only_pods_with_artifacts_reach_gke_metadata(overlay_path: str, source: str) -> None:
    open_ = overlay_path == "overlays/gke" and source != "submitter"
    assert allowed(overlay_path, source, "metadata", 80, "egress") is open_


def test_gke_restricts_connections_by_host_name(overlay_path: str, tmp_path: Path) -> None:
    """The component takes the broad rules away and puts host names in their place."""
    if overlay_path != "overlays/gke":
        return  # the component is GKE's
    shutil.copytree(K8S, tmp_path / "k8s")
    overlay = tmp_path / "k8s" / overlay_path / "kustomization.yaml"
    overlay.write_text(overlay.read_text() + "components: [../../components/gke-fqdn]\n")
    done = subprocess.run([str(KUBECTL), "kustomize", str(overlay.parent)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    resources = list(yaml.safe_load_all(done.stdout))
    for name in ("ray-nodes-object-storage", "retrain-check"):
        (standard,) = [doc for doc in resources if (doc["kind"], doc["metadata"]["name"]) == ("NetworkPolicy", name)]
        before = one(overlay_path, "NetworkPolicy", name)["spec"]
        assert standard["spec"]["egress"] == before["egress"][1:] and "Egress" in standard["spec"]["policyTypes"]
        assert [entry["ipBlock"]["cidr"] for entry in before["egress"][0]["to"]] == ["0.0.0.0/0", "::/0"]
        (named,) = [doc for doc in resources if (doc["kind"], doc["metadata"]["name"]) == ("FQDNNetworkPolicy", name)]
        assert named["apiVersion"] == "networking.gke.io/v1alpha1" and named["metadata"]["namespace"] == "mlgo"
        assert named["spec"]["podSelector"] == before["podSelector"]
        (rule,) = named["spec"]["egress"]
        assert {"name": "storage.googleapis.com"} in rule["matches"]
        assert rule["ports"] == [{"port": 443, "protocol": "TCP"}]


@pytest.mark.parametrize("components", [[], ["s3-credentials"]], ids=["alone", "with_s3"])
@pytest.mark.parametrize("first", [True, False])
def test_check_starts_stored_pipeline_of_kfp(
    overlay_path: str, components: list[str], first: bool, tmp_path: Path
) -> None:
    """The commands of the component's script are parsed by mlgo itself, and KFP's API server is reached.

    Components that change the same container can be combined in any order.
    """
    if overlay_path == "base":
        return  # components are for overlays
    shutil.copytree(K8S, tmp_path / "k8s")
    overlay = tmp_path / "k8s" / overlay_path / "kustomization.yaml"
    names = ["retrain-on-kfp", *components] if first else [*components, "retrain-on-kfp"]
    listed = ", ".join(f"../../components/{name}" for name in names)
    overlay.write_text(overlay.read_text() + f"components: [{listed}]\n")
    done = subprocess.run([str(KUBECTL), "kustomize", str(overlay.parent)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    resources = {(doc["kind"], doc["metadata"]["name"]): doc for doc in yaml.safe_load_all(done.stdout)}
    job, policy = resources["CronJob", "retrain-check"], resources["NetworkPolicy", "retrain-check"]
    for document in (job, policy):
        kubernetes_validate.validate(document, VERSION, strict=True)
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    ((container,), volumes) = (pod["containers"], {volume["name"]: volume for volume in pod["volumes"]})
    (values,) = [doc["data"] for (kind, name), doc in resources.items() if name.startswith("retrain-on-kfp")]
    variables = {entry["name"] for entry in container["env"]}
    assert set(values) <= variables
    assert container.get("envFrom", []) == ([{"secretRef": {"name": "mlgo-s3"}}] if components else [])
    assert container["command"] == ["sh", "-ec"] and pod["automountServiceAccountToken"] is False
    (script,) = container["args"]
    assert set(re.findall(r"\$(\w+)", script)) <= variables
    lines = [line.strip() for line in script.replace("\\\n", " ").splitlines() if "mlgo " in line]
    commands = [shlex.split(line) for line in lines]
    assert [words[:3] for words in commands] == [["mlgo", "retrain", "check"], ["mlgo", "retrain", "submit"]]
    for words, command in zip(commands, (check_command, submit_command), strict=True):
        command.make_parser(click.Context(command)).parse_args(words[3:])
    (source,) = volumes["kfp-token"]["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "pipelines.kubeflow.org"
    assert {"port": 8888, "protocol": "TCP"} in [port for rule in policy["spec"]["egress"] for port in rule["ports"]]


def test_object_storage_of_kfp_is_reached_with_the_component(overlay_path: str, tmp_path: Path) -> None:
    """SeaweedFS's own policy in KFP's manifests admits namespaces with the label app.kubernetes.io/part-of."""
    if overlay_path == "base":
        return  # components are for overlays
    shutil.copytree(K8S, tmp_path / "k8s")
    overlay = tmp_path / "k8s" / overlay_path / "kustomization.yaml"
    overlay.write_text(
        overlay.read_text() + "components: [../../components/s3-credentials, ../../components/kubeflow-storage]\n"
    )
    done = subprocess.run([str(KUBECTL), "kustomize", str(overlay.parent)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    resources = {(doc["kind"], doc["metadata"]["name"]): doc for doc in yaml.safe_load_all(done.stdout)}
    labels = resources["Namespace", "mlgo"]["metadata"]["labels"]
    assert labels["app.kubernetes.io/part-of"] == "kubeflow-profile"
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    for name in ("ray-nodes-object-storage", "retrain-check"):
        policy = resources["NetworkPolicy", name]
        kubernetes_validate.validate(policy, VERSION, strict=True)
        before = one(overlay_path, "NetworkPolicy", name)["spec"]["egress"]
        (rule,) = [rule for rule in policy["spec"]["egress"] if rule not in before]
        assert len(policy["spec"]["egress"]) == len(before) + 1
        (peer,) = rule["to"]
        assert peer["podSelector"]["matchLabels"] == {"app": "seaweedfs"}
        assert rule["ports"] == [{"port": 8333, "protocol": "TCP"}], "the port of the pod, not of its service"


def test_s3_credentials_are_those_of_the_rayjob(overlay_path: str, tmp_path: Path) -> None:
    """With the component, the RayJob is still the one that the PPO step makes, and the check has the credentials."""
    shutil.copytree(K8S, tmp_path / "k8s")
    overlay = tmp_path / "k8s" / "overlays" / "s3" / "kustomization.yaml"
    overlay.parent.mkdir()
    kustomization = {"resources": [f"../../{overlay_path}"], "components": ["../../components/s3-credentials"]}
    overlay.write_text(yaml.safe_dump(kustomization))
    done = subprocess.run([str(KUBECTL), "kustomize", str(overlay.parent)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    resources = {(doc["kind"], doc["metadata"]["name"]): doc for doc in yaml.safe_load_all(done.stdout)}
    kubernetes_validate.validate(resources["CronJob", "retrain-check"], VERSION, strict=True)
    cluster = resources["RayJob", "ppo"]["spec"]["rayClusterSpec"]
    spec = RayJobSpec("ppo", "mlgo", IMAGE, ("mlgo",), s3_credentials_secret="mlgo-s3", **SPECS[overlay_path])
    made = rayjob(spec)["spec"]["rayClusterSpec"]
    for rendered_cluster in (cluster, resources["RayCluster", "ray"]["spec"]):
        for group, ours in (
            (rendered_cluster["headGroupSpec"], made["headGroupSpec"]),
            (rendered_cluster["workerGroupSpecs"][0], made["workerGroupSpecs"][0]),
        ):
            ((there,), (expected,)) = (each["template"]["spec"]["containers"] for each in (group, ours))
            assert there["envFrom"] == expected["envFrom"] == [{"secretRef": {"name": "mlgo-s3"}}]
    pod = resources["CronJob", "retrain-check"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "mlgo-s3"}}]


def test_ray_heads_are_not_evicted(overlay_path: str) -> None:
    (budget,) = all_of(overlay_path, "PodDisruptionBudget")
    peer_of = peers(overlay_path)
    assert matches(budget["spec"]["selector"], peer_of["head"].labels)
    assert not matches(budget["spec"]["selector"], peer_of["worker"].labels)
    # An integer: of pods whose controller has no scale, as RayCluster, Kubernetes takes nothing else.
    assert isinstance(budget["spec"]["minAvailable"], int) and budget["spec"]["minAvailable"] > 100


def test_values_reach_every_manifest(overlay_path: str, tmp_path: Path) -> None:
    shutil.copytree(K8S, tmp_path / "k8s")
    digest = "sha256:" + "1" * 64
    values = {
        "toolchain_image": f"registry.example/team/mlgo-toolchain@{digest}",
        "cluster_image": f"registry.example/team/mlgo-cluster@{digest}",
        "bucket": "team-bucket",
        "state": "s3://team-bucket/state.json",
        "corpus": "s3://team-bucket/own",
        "check_schedule": "5 4 * * 1",
        "kuberay_namespace": "operators",
        "max_workers": "3",
        "ray_secrets": "team-key",
        "quota_cpus": "7",
        "quota_memory": "70Gi",
        "quota_pods": "17",
        "steps_google_account": "steps@team.iam.gserviceaccount.com",
        "ray_google_account": "ray@team.iam.gserviceaccount.com",
        "retrain_google_account": "retrain@team.iam.gserviceaccount.com",
    }
    file = tmp_path / "k8s" / "base" / "values.env"
    assert set(values) == set(re.findall(r"^(\w+)=", file.read_text(), re.MULTILINE))
    file.write_text("".join(f"{key}={value}\n" for key, value in values.items()))

    command = [str(KUBECTL), "kustomize", str(tmp_path / "k8s" / overlay_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "CHANGE-ME" not in done.stdout
    documents = list(yaml.safe_load_all(done.stdout))
    by_kind = {document["kind"]: document for document in documents}

    images = set(re.findall(r"\bimage: (\S+)", done.stdout))
    assert images == {values["toolchain_image"], values["cluster_image"]}
    job = by_kind["RayJob"]["spec"]
    buckets = re.findall(r"gs://([^/]+)/", job["entrypoint"])
    assert buckets == ["team-bucket"] * 6
    for cluster in (by_kind["RayCluster"]["spec"], job["rayClusterSpec"]):
        assert cluster["workerGroupSpecs"][0]["maxReplicas"] == 3
    assert by_kind["CronJob"]["spec"]["schedule"] == "5 4 * * 1"
    assert "kubernetes.io/metadata.name: operators" in done.stdout and "ray-system" not in done.stdout
    data = by_kind["ConfigMap"]["data"]
    assert (data["state"], data["corpus"]) == (values["state"], values["corpus"])
    quota = by_kind["ResourceQuota"]["spec"]["hard"]
    assert (quota["requests.cpu"], quota["requests.memory"], quota["pods"]) == ("7", "70Gi", "17")
    accounts = [document["metadata"] for document in documents if document["kind"] == "ServiceAccount"]
    for account in accounts:
        expected = values[f"{account['name'].removeprefix('mlgo-')}_google_account"]
        identity = account.get("annotations", {}).get("iam.gke.io/gcp-service-account")
        assert identity == (expected if overlay_path == "overlays/gke" else None)
