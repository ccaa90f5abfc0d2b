"""Tests of `mlgo cluster check` against an API server that answers as Kubernetes documents it.

The requests are checked (token, review objects by Kubernetes' own schema); no real cluster is asked.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import kubernetes_validate
import pytest
import requests
import yaml
from click.testing import CliRunner
from kubernetes.config import kube_config

from components.platform.errors import UserError
from pipelines.cli.main import cli
from pipelines.cli.submit import end_ray_clusters
from pipelines.cluster import kubernetes_checks
from pipelines.cluster.storage_and_images import check_bucket
from pipelines.spec import COMPILED, load_spec
from pipelines.submit.kfp import warn_of_nodes
from pipelines.submit.kfp_client import KfpAddress, KfpClient
from pipelines.submit.kfp_run import PodWaits
from pipelines.submit.polling import Task
from tests.servers.http_server import JsonHandler, serving
from tests.servers.kubernetes_server import status
from tests.servers.s3_server import s3_server
from tests.servers.storage_server import storage_server
from tests.support.buckets import use_s3
from tests.support.crd import SCHEMAS, needs_schemas

ROOT = Path(__file__).parents[3]
NAMESPACE = "/api/v1/namespaces/mlgo"
RAYJOBS = "/apis/ray.io/v1/namespaces/mlgo/rayjobs"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/rayjobs.ray.io"


def resources(group: str, version: str, *names: str) -> dict[str, Any]:
    entries = [{"name": n, "singularName": "", "namespaced": True, "kind": n.title(), "verbs": ["get"]} for n in names]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}",
        "resources": entries,
    }


def quota(**left: str) -> dict[str, Any]:
    names = {name.replace("_", "."): amount for name, amount in left.items()}
    return {"metadata": {"name": "team"}, "status": {"hard": names, "used": dict.fromkeys(names, "0")}}


def definition(schema: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}}


def node(cpu: str, memory: str) -> dict[str, Any]:
    return {"metadata": {"name": "n"}, "spec": {}, "status": {"allocatable": {"cpu": cpu, "memory": memory}}}


@dataclass
class Api:
    """A cluster that has everything.

    Attributes:
        answers: path -> body of a GET; a path that is missing answers 404.
        forbidden: paths that answer 403.
        reason: message of these answers; empty for one about rights.
        denied: (account, verb, resource) that reviews do not allow.
        reviews: reviews that were asked for.
        deleted: paths of objects that were deleted.
        refused: a word of RayJobs that the admission policy refuses -> its message; empty without the policy.
    """

    responses: dict[str, Any] = field(
        default_factory=lambda: {
            "/version/": {"major": "1", "minor": "31", "gitVersion": "v1.31.0"}
            | dict.fromkeys(("buildDate", "compiler", "gitCommit", "gitTreeState", "goVersion", "platform"), "x"),
            "/apis/argoproj.io/v1alpha1": resources("argoproj.io", "v1alpha1", "workflows", "workflowtaskresults"),
            "/apis/ray.io/v1": resources("ray.io", "v1", "rayclusters", "rayjobs"),
            NAMESPACE: {"metadata": {"name": "mlgo"}},
            f"{NAMESPACE}/serviceaccounts/mlgo-steps": {"metadata": {"name": "mlgo-steps"}},
            f"{NAMESPACE}/serviceaccounts/mlgo-ray": {"metadata": {"name": "mlgo-ray"}},
            f"{NAMESPACE}/resourcequotas": {"items": [quota(requests_cpu="100", limits_memory="1000Gi", pods="50")]},
            CRD: definition({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
            "/api/v1/nodes": {"items": [node("2", "4Gi"), node("8", "32Gi")]},
        }
    )
    forbidden: set[str] = field(default_factory=set)
    reason: str = ""
    denied: set[tuple[str, str, str]] = field(default_factory=set)
    reviews: list[dict[str, Any]] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(
        default_factory=lambda: {"'serviceAccountName': 'default'": "run as mlgo-ray", "mlgo-cluster@": "cluster_image"}
    )

    def respond(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        if path in self.forbidden:
            return status(403, "Forbidden", self.reason or f'User "me" cannot read {path}')
        if path == "/apis/authorization.k8s.io/v1/subjectaccessreviews" and method == "POST":
            kubernetes_validate.validate(body, "1.31", strict=True)
            self.reviews.append(body)
            asked = body["spec"]["resourceAttributes"]
            account = body["spec"]["user"].rpartition(":")[2]
            allowed = (account, asked["verb"], asked["resource"]) not in self.denied
            return 201, {**body, "status": {"allowed": allowed}}
        if path == RAYJOBS and method == "POST":
            why = next((message for word, message in self.refused.items() if word in str(body)), "")
            text = f"ValidatingAdmissionPolicy 'mlgo-ray-clusters' with binding 'b' denied request: {why}"
            return status(422, "Invalid", text) if why else (201, body)
        if method == "DELETE" and path in self.responses:
            self.deleted.append(path)
            return 200, self.responses[path]
        if method == "GET" and path in self.responses:
            return 200, self.responses[path]
        return status(404, "NotFound", "the server could not find the requested resource")


Check = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def check(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Check]:
    """Run `mlgo cluster check` in this process, with a kubeconfig of `api`."""

    class Handler(JsonHandler):
        def do_GET(self) -> None:
            body = self.read_json()
            if self.headers.get("Authorization") != "Bearer mine":
                code, document = status(401, "Unauthorized", "Unauthorized")
            else:
                parts = urlsplit(self.path)
                selected = f"?{unquote(parts.query)}" if "labelSelector" in parts.query else ""
                code, document = api.respond(self.command, f"{parts.path}{selected}", body)
            self.send_json(document, code)

        do_POST = do_DELETE = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def run(*arguments: str, token: str = "mine", **variables: str) -> subprocess.CompletedProcess[str]:
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "k", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        for module in (kube_config, kubernetes_checks):  # which read KUBECONFIG when they are imported
            monkeypatch.setattr(module, "KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
        command = ["cluster", "check", "--images", str(tmp_path / "images.json"), *arguments]
        done = CliRunner().invoke(cli, command, env=variables)
        if done.exception and not isinstance(done.exception, UserError):
            raise done.exception
        return subprocess.CompletedProcess(command, done.exit_code, done.stdout, f"{done.exception or ''}")

    with serving(server):
        yield run


def lines(done: subprocess.CompletedProcess[str], status: str) -> list[str]:
    return [line.removeprefix(status).strip() for line in done.stdout.splitlines() if line.startswith(status)]


def test_complete_cluster_misses_only_images(api: Api, check: Check) -> None:
    done = check("--workers", "4")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert [line.split(":")[0] for line in lines(done, "missing")] == ["no images are built"]
    assert len(lines(done, "ok")) == 12 and not lines(done, "unknown"), done.stdout
    asked = {
        (r["spec"]["user"], a["verb"], a["resource"], a.get("subresource"))
        for r in api.reviews
        for a in [r["spec"]["resourceAttributes"]]
    }
    assert ("system:serviceaccount:mlgo:mlgo-steps", "get", "pods", "log") in asked and len(asked) == 9


def test_rights_that_are_asked_for_are_those_of_the_manifests(api: Api, check: Check) -> None:
    check("--workers", "1")
    granted = set()
    for document in yaml.safe_load_all((ROOT / "k8s" / "base" / "rbac.yaml").read_text()):
        for rule in document.get("rules", ()):
            granted |= {
                (verb, group, resource)
                for verb in rule["verbs"]
                for group in rule["apiGroups"]
                for resource in rule["resources"]
            }
    reviewed = set()
    for review in api.reviews:
        a = review["spec"]["resourceAttributes"]
        resource = f"{a['resource']}/{a['subresource']}" if a.get("subresource") else a["resource"]
        reviewed.add((a["verb"], a.get("group", ""), resource))
    assert reviewed == granted


@pytest.mark.parametrize(
    ("lacks", "named", "remedy"),
    [
        ("/apis/ray.io/v1", "KubeRay's operator: rayjobs.ray.io v1 is not served", "install KubeRay"),
        ("/apis/argoproj.io/v1alpha1", "Kubeflow Pipelines: workflows.argoproj.io", "install Kubeflow Pipelines"),
        (f"{NAMESPACE}/serviceaccounts/mlgo-ray", "there is no service account mlgo-ray in mlgo", "kubectl apply -k"),
        (NAMESPACE, "there is no namespace mlgo", "kubectl apply -k"),
    ],
)
def test_missing_thing_is_named_with_its_remedy(api: Api, check: Check, lacks: str, named: str, remedy: str) -> None:
    del api.responses[lacks]
    done = check()
    assert done.returncode == 1 and "Traceback" not in done.stderr
    (line,) = (line for line in lines(done, "missing") if named in line)
    after = done.stdout[done.stdout.index(line) :].splitlines()[1]
    assert "remedy:" in after and remedy in after


def test_missing_rights_are_listed_together(api: Api, check: Check) -> None:
    api.denied |= {("mlgo-steps", "create", "rayjobs"), ("mlgo-steps", "list", "pods")}
    done = check()
    assert "mlgo-steps may not create rayjobs, list pods in mlgo" in done.stdout


@pytest.mark.parametrize(
    ("option", "keys", "wrong"),
    [
        ("credentials_secret", ("key.json",), ""),
        ("credentials_secret", ("other",), "has no key.json"),
        ("s3_credentials_secret", ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"), ""),
        ("s3_credentials_secret", ("AWS_ACCESS_KEY_ID",), "has no AWS_SECRET_ACCESS_KEY"),
        ("s3_credentials_secret", None, "there is no Secret mine in mlgo"),
    ],
)
def test_secret_of_ray_nodes_has_its_keys(
    api: Api, check: Check, option: str, keys: tuple[str, ...] | None, wrong: str
) -> None:
    if keys is not None:
        api.responses[f"{NAMESPACE}/secrets/mine"] = {"metadata": {"name": "mine"}, "data": dict.fromkeys(keys, "eA==")}
    done = check("--ray-cluster-options", f"{option}=mine")
    assert ("Secret mine" in lines(done, "ok")) is (wrong == ""), done.stdout
    assert [wrong in line for line in lines(done, "missing") if "Secret" in line] == ([True] if wrong else [])


def test_training_that_the_admission_policy_refuses_is_found(api: Api, check: Check) -> None:
    assert "admission policy mlgo-ray-clusters restricts RayJobs in mlgo" in lines(check(), "ok")
    api.refused["'maxReplicas': 9"] = "at most 8 workers"
    image = "cluster=registry.example/cluster@sha256:" + "1" * 64
    done = check("--workers", "9", "--images", image)
    assert "the training is refused: at most 8 workers" in lines(done, "missing"), done.stdout
    assert not any("refused" in line for line in lines(check("--workers", "8", "--images", image), "missing"))


def test_missing_admission_policy_is_found(api: Api, check: Check) -> None:
    api.refused.clear()
    done = check()
    (line,) = (line for line in lines(done, "missing") if "RayJobs in mlgo may use every Secret" in line)
    assert "1.30" in done.stdout[done.stdout.index(line) :].splitlines()[1]


def test_admission_of_rayjobs_is_not_tried_without_kuberay(
    api: Api, check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    respond = api.respond
    missing = status(404, "NotFound", "the server could not find the requested resource")
    monkeypatch.setattr(api, "respond", lambda *asked: missing if "ray.io" in asked[1] else respond(*asked))
    done = check()
    assert "KubeRay's operator" in lines(done, "missing")[0] and "every Secret" not in done.stdout


def test_who_may_create_no_rayjobs_cannot_look_at_admission(api: Api, check: Check) -> None:
    api.forbidden.add(RAYJOBS)
    assert any("RayJobs: 403" in line for line in lines(check(), "unknown"))


def test_full_quota_of_rayjobs_is_found(api: Api, check: Check) -> None:
    api.forbidden.add(RAYJOBS)
    api.reason = 'rayjobs.ray.io "check-1" is forbidden: exceeded quota: mlgo, requested: count/rayjobs.ray.io=1'
    done = check()
    (line,) = (line for line in lines(done, "missing") if "exceeded quota: mlgo" in line)
    assert "failed trainings" in done.stdout[done.stdout.index(line) :].splitlines()[1]


def test_placeholder_in_workload_identity_is_found(api: Api, check: Check) -> None:
    annotations = {"iam.gke.io/gcp-service-account": "mlgo@CHANGE-ME.iam.gserviceaccount.com"}
    api.responses[f"{NAMESPACE}/serviceaccounts/mlgo-steps"]["metadata"]["annotations"] = annotations
    assert "service account mlgo-steps acts as mlgo@CHANGE-ME" in check().stdout


def test_quota_and_nodes_that_are_too_small(api: Api, check: Check) -> None:
    api.responses[f"{NAMESPACE}/resourcequotas"]["items"] = [quota(requests_cpu="18", pods="3")]
    api.responses["/api/v1/nodes"]["items"] = [node("2", "64Gi")]
    done = check("--workers", "4")
    assert "none of 1 nodes is large enough for ppo (4 processors" in lines(done, "unknown")[0]
    assert "mlgo pipeline submit --small" in done.stdout
    assert "team leaves 18 requests.cpu of 18.2" in done.stdout and "team leaves 3 pods of 6" in done.stdout, (
        done.stdout
    )
    assert "none of 1 nodes is large enough for head (" in lines(done, "unknown")[1]
    queued = check("--workers", "4", "--ray-cluster-options", "queue=q")
    assert "team leaves 18 requests.cpu of 18.1;" in queued.stdout, "no autoscaler in a queue of Kueue"
    enough = check("--workers", "1", "--ray-cluster-options", "cpus_per_worker=1,head_cpus=1")
    assert len(lines(enough, "unknown")) == 1 and "does not fit" not in enough.stdout, enough.stdout


def test_submission_warns_and_waiting_says_why(api: Api, check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the cluster of the kubeconfig, if KFP runs there."""
    check("--workers", "0")  # writes the kubeconfig
    message = "0/1 nodes are available: 1 Insufficient cpu."
    unscheduled = {"type": "PodScheduled", "status": "False", "message": message}
    api.responses[f"{NAMESPACE}/pods/p-2"] = {"status": {"phase": "Pending", "conditions": [unscheduled]}}
    api.responses["/api/v1/nodes"]["items"] = [node("2", "64Gi")]

    def run() -> str:
        warn_of_nodes(load_spec(COMPILED))
        waits = PodWaits(KfpClient(KfpAddress("http://127.0.0.1:1", "mlgo")))
        looks = [waits.explain([Task("ppo", "RUNNING", pods=("p-1", "p-2"), may_wait=True)]) for _look in range(12)]
        return "\n".join([capsys.readouterr().out, *looks[5]]) if looks[5] == looks[11] else ""

    assert "none of 1 nodes is large enough for ppo (4 processors and 7.5 GiB of memory), " in (said := run())
    assert "\n  check that an autoscaled node pool has such nodes" in said
    assert said.count(f"[ppo] its pod has not started: {message}\n  cancel the run and submit it with --small") == 1
    del api.responses["/apis/argoproj.io/v1alpha1"]
    assert "nodes is large enough" not in run()


def test_rayjobs_of_a_canceled_run_are_deleted(api: Api, check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    check("--workers", "0")  # writes the kubeconfig

    def run() -> str:
        end_ray_clusters("run-1")
        return capsys.readouterr().out

    job = {"metadata": {"name": "ppo-1", "namespace": "mlgo"}}
    one = "/apis/ray.io/v1/namespaces/mlgo/rayjobs/ppo-1"
    api.responses["/apis/ray.io/v1/rayjobs?labelSelector=pipeline/runid=run-1"] = {"items": [job]}
    api.responses[one] = job
    assert run() == "deleting the RayJob mlgo/ppo-1, whose checkpoints stay\n" and api.deleted == [one]
    api.responses["/apis/ray.io/v1/rayjobs?labelSelector=pipeline/runid=run-1"] = {"items": []}
    assert "there is none in the cluster at" in run() and "kubectl delete rayjobs -A -l pipeline/runid=run-1" in run()


def test_room_that_other_pods_leave_is_counted(api: Api, check: Check) -> None:
    def pod(phase: str, cpu: str) -> dict[str, Any]:
        requests = {"cpu": cpu, "memory": "1Gi"}
        container = {"name": "c", "resources": {"requests": requests}}
        spec = {"nodeName": "n", "containers": [container]}
        return {"metadata": {"name": "p"}, "spec": spec, "status": {"phase": phase}}

    api.responses["/api/v1/nodes"]["items"] = [node("8", "64Gi")]
    api.responses["/api/v1/pods"] = {"items": [pod("Running", "4500m"), pod("Succeeded", "8")]}
    done = check("--workers", "0")
    (line,) = lines(done, "unknown")
    assert line.startswith("no node has room now for ppo (4 processors and 7.5 GiB of memory)"), done.stdout
    api.responses["/api/v1/pods"]["items"].pop(0)
    assert not lines(check("--workers", "0"), "unknown")


def test_steps_in_the_namespace_of_kfp_and_ray_in_another(api: Api, check: Check) -> None:
    kubeflow = "/api/v1/namespaces/kubeflow"
    api.responses |= {kubeflow: {"metadata": {"name": "kubeflow"}}}
    api.responses |= {f"{kubeflow}/serviceaccounts/pipeline-runner": {"metadata": {"name": "pipeline-runner"}}}
    del api.responses[f"{NAMESPACE}/serviceaccounts/mlgo-steps"]
    options = ("--namespace", "kubeflow", "--service-account", "pipeline-runner", "--workers", "1")
    done = check(*options)
    assert [line.split(":")[0] for line in lines(done, "missing")] == ["no images are built"], done.stdout
    asked = {
        (r["spec"]["user"], a["namespace"], a["resource"])
        for r in api.reviews
        for a in [r["spec"]["resourceAttributes"]]
    }
    runner = "system:serviceaccount:kubeflow:pipeline-runner"
    assert (runner, "mlgo", "rayjobs") in asked and (runner, "kubeflow", "workflowtaskresults") in asked
    assert (runner, "kubeflow", "rayjobs") not in asked and (runner, "kubeflow", "secrets") in asked
    api.denied.add(("pipeline-runner", "create", "rayjobs"))
    bind = "--namespace mlgo --role mlgo-run-ray-jobs --serviceaccount kubeflow:pipeline-runner"
    assert bind in check(*options).stdout


@needs_schemas
def test_fields_that_kuberay_does_not_know_are_named(api: Api, check: Check) -> None:
    document = yaml.load((SCHEMAS / "ray.io_rayjobs.yaml").read_text(), yaml.CSafeLoader)
    (version,) = [version for version in document["spec"]["versions"] if version["name"] == "v1"]
    schema = version["schema"]["openAPIV3Schema"]
    api.responses[CRD] = definition(schema)
    assert "KubeRay's operator knows the fields of rayjobs.ray.io that are set" in lines(check(), "ok")
    del schema["properties"]["spec"]["properties"]["preRunningDeadlineSeconds"]  # as KubeRay 1.5
    done = check()
    named = "KubeRay's operator does not know spec.preRunningDeadlineSeconds of RayJobs"
    assert named in lines(done, "missing"), done.stdout
    del api.responses[CRD]
    assert any("no definition to be read" in line for line in lines(check(), "unknown"))


def test_missing_secret_of_steps_is_found(api: Api, check: Check) -> None:
    api.responses[f"{NAMESPACE}/secrets/mine"] = {"metadata": {"name": "mine"}, "data": {"url": "eA=="}}
    done = check("--workers", "0", "--secret", "mine", "--secret", "other")
    assert "Secret mine" in lines(done, "ok") and "there is no Secret other in mlgo" in lines(done, "missing")


@pytest.mark.parametrize(("version", "status_"), [("2.15.0", "missing"), ("2.16.0", "ok"), ("", "unknown")])
def test_restricted_namespace_needs_a_kfp_that_can_run_there(
    api: Api, check: Check, monkeypatch: pytest.MonkeyPatch, version: str, status_: str
) -> None:
    monkeypatch.setattr(Kfp, "version", version)
    api.responses[NAMESPACE]["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": "restricted"}
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Kfp)) as url:
        done = check("--workers", "0", *(("--host", url) if version else ()))
    assert any("Pod Security of mlgo is restricted" in line for line in lines(done, status_)), done.stdout
    assert any("has one user" in line for line in lines(done, "missing")) is bool(version)


def test_forbidden_requests_are_reported_as_unknown(api: Api, check: Check) -> None:
    api.forbidden |= {"/api/v1/nodes", "/apis/authorization.k8s.io/v1/subjectaccessreviews"}
    done = check()
    assert [line.split(":")[0] for line in lines(done, "unknown")] == ["rights of mlgo-steps", "nodes"] * 2


def test_runs_without_ray_need_neither_kuberay_nor_capacity(api: Api, check: Check) -> None:
    for path in ("/apis/ray.io/v1", f"{NAMESPACE}/serviceaccounts/mlgo-ray", f"{NAMESPACE}/resourcequotas"):
        del api.responses[path]
    done = check("--workers", "0")
    assert [line.split(":")[0] for line in lines(done, "missing")] == ["no images are built"]


@pytest.mark.parametrize("document", [{}, [], "a page to log in"])
def test_other_server_than_kubernetes_ends_the_check(api: Api, check: Check, document: Any) -> None:
    api.responses["/version/"] = document
    done = check()
    assert done.returncode == 1 and "is no Kubernetes API" in done.stderr and "Traceback" not in done.stderr


def test_rejected_credentials_end_the_check(check: Check) -> None:
    done = check(token="expired")
    assert done.returncode == 1 and "does not answer: 401 Unauthorized" in done.stderr and not lines(done, "missing")


def test_bucket_is_probed_and_left_empty(check: Check) -> None:
    with storage_server("checked") as url:
        done = check("--pipeline-root", "gs://checked/kfp", STORAGE_EMULATOR_HOST=url)
        assert any("gs://checked/kfp can be written, read and emptied" in line for line in lines(done, "ok"))
        refused = check("--pipeline-root", "gs://forbidden/kfp", STORAGE_EMULATOR_HOST=url)
        assert any("gs://forbidden/kfp cannot be tried" in line for line in lines(refused, "unknown")), refused.stdout
        assert requests.get(f"{url}/storage/v1/b/checked/o", timeout=10).json()["items"] == []


def test_artifact_root_is_probed(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    with s3_server("mlpipeline") as url:
        use_s3(url, monkeypatch)
        done = check("--artifact-root", "s3://mlpipeline/mlgo")
        line = "s3://mlpipeline/mlgo can be written, read and emptied"
        assert any(line in ok_line for ok_line in lines(done, "ok")), done.stdout
    refused = check("--artifact-root", "minio://mlpipeline/mlgo")
    assert refused.returncode == 1 and "is no folder in object storage" in refused.stderr


def test_image_that_was_never_pushed_is_found(check: Check, tmp_path: Path) -> None:
    image = {"tag": "mlgo-toolchain:1", "reference": f"sha256:{'1' * 64}", "bytes": 1, "local_base": False}
    (tmp_path / "images.json").write_text(json.dumps({"toolchain": image}))
    done = check()
    missing = lines(done, "missing")
    assert missing[0] == "the image mlgo-toolchain:1 is not in a registry"
    assert missing[1:] == ["the image training is not built", "the image cluster is not built"]


def test_images_are_not_looked_up_without_docker(check: Check, tmp_path: Path) -> None:
    reference = f"registry/mlgo-toolchain@sha256:{'1' * 64}"
    image = {"tag": "registry/mlgo-toolchain:1", "reference": reference, "bytes": 1, "local_base": False}
    (tmp_path / "images.json").write_text(json.dumps({"toolchain": image}))
    done = check(DOCKER_HOST="tcp://127.0.0.1:1")
    assert f"{reference} is not looked up: no docker answers here" in lines(done, "unknown"), done.stdout


class Kfp(JsonHandler):
    """A KFP server that only tells its version."""

    version = ""

    def do_GET(self) -> None:
        if self.path == "/apis/v2beta1/healthz" and self.version[0] != "1":
            return self.send_json({"tag_name": self.version, "multi_user": False})
        self.send_json({"tag_name": self.version}, 200 if self.path == "/apis/v1beta1/healthz" else 404)


@pytest.mark.parametrize(
    ("version", "status_", "named"),
    [
        ("2.14.0", "ok", "Kubeflow Pipelines 2.14.0 at "),
        ("2.5.0", "missing", "is version 2.5.0, older than 2.14"),
        ("1.8.5", "missing", "is version 1.8.5, older than 2.14"),
    ],
)
def test_version_of_kfp_is_asked(
    check: Check, monkeypatch: pytest.MonkeyPatch, version: str, status_: str, named: str
) -> None:
    monkeypatch.delenv("KFP_TOKEN", raising=False)
    monkeypatch.setattr(Kfp, "version", version)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Kfp)
    with serving(server) as url:
        done = check("--host", url)
    assert any(named in line for line in lines(done, status_)), done.stdout
    assert any("does not answer" in line for line in lines(check("--host", url), "unknown"))


def test_root_of_stock_kfp_is_left_to_kfp() -> None:
    row = check_bucket("minio://mlpipeline/v2/artifacts")
    assert row.status == "unknown" and "only Kubeflow Pipelines has the credentials" in row.what
    with pytest.raises(UserError, match="has no valid bucket and path"):
        check_bucket("minio://mlpipeline")
