"""The RayJob manifest: any spec gives a manifest that KubeRay accepts, or an error with the reason."""

from __future__ import annotations

import dataclasses
import subprocess
from typing import Any

import kubernetes_validate
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.platform.errors import UserError
from components.platform.rayjob.manifest import job_name, rayjob
from components.platform.rayjob.ray_cluster import SERVICE_ACCOUNT
from components.platform.rayjob.spec import GKE_SPOT, RAY_VERSION, RayJobSpec
from components.platform.workers.settings import NODE_SETTINGS, SUBREAPER
from tests.support.crd import check, needs_schemas

IMAGE = "europe-docker.pkg.dev/p/r/mlgo-cluster@sha256:" + "5" * 64
SPEC = RayJobSpec("ppo-1", "mlgo", IMAGE, ("mlgo", "ppo"))

arguments = st.text(st.characters(blacklist_characters="$\0\n", blacklist_categories=["Cs"]), max_size=20)
specs = st.builds(
    RayJobSpec,
    name=st.from_regex(r"[a-z]([-a-z0-9]{0,45}[a-z0-9])?", fullmatch=True),
    namespace=st.from_regex(r"[a-z]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True),
    image=st.just(IMAGE),
    entrypoint=st.lists(arguments, min_size=1, max_size=4).map(tuple).filter(lambda argv: argv[0]),
    min_workers=st.integers(0, 3),
    max_workers=st.integers(3, 1000),
    cpus_per_worker=st.integers(1, 200),
    memory_per_task_bytes=st.integers(2**26, 2**40),
    head_memory_bytes=st.integers(2**26, 2**40),
    spot=st.sampled_from([None, GKE_SPOT, ("kubernetes.azure.com/scalesetpriority", "spot")]),
    env=st.dictionaries(st.from_regex(r"[A-Z_]{1,12}", fullmatch=True), arguments, max_size=3),
    credentials_secret=st.sampled_from(["", "mlgo-credentials"]),
    s3_credentials_secret=st.sampled_from(["", "mlgo-s3"]),
    queue=st.sampled_from(["", "team"]),
    retries=st.integers(0, 5),
    deadline_s=st.integers(1, 2**31 - 1),
)


def pods(document: dict[str, Any]) -> dict[str, Any]:
    cluster = document["spec"]["rayClusterSpec"]
    return {
        "head": cluster["headGroupSpec"]["template"]["spec"],
        "workers": cluster["workerGroupSpecs"][0]["template"]["spec"],
        "submitter": document["spec"]["submitterPodTemplate"]["spec"],
    }


@needs_schemas
@given(specs)
def test_kuberay_accepts_every_manifest(spec: RayJobSpec) -> None:
    """Checks the CRD and the rules of the operator (ValidateRayJobSpec) that the CRD lacks."""
    stored = check(rayjob(spec))
    job, cluster = stored["spec"], stored["spec"]["rayClusterSpec"]
    assert len(stored["metadata"]["name"]) <= 47 and job["shutdownAfterJobFinishes"]
    assert job["submitterConfig"]["backoffLimit"] > 2, "KubeRay's default, which a long training uses up"
    assert cluster["rayVersion"] and cluster["authOptions"]["mode"] == "token"
    for pod in pods(stored).values():
        assert pod["restartPolicy"] == "Never"  # for the autoscaler, v2
        assert pod["containers"][0]["image"] == spec.image
    head, (workers,) = cluster["headGroupSpec"], cluster["workerGroupSpecs"]
    assert "resources" not in head and "resources" not in workers
    assert workers["minReplicas"] <= workers["replicas"] <= workers["maxReplicas"]


@given(specs)
def test_worker_memory_exceeds_the_memory_of_its_tasks(spec: RayJobSpec) -> None:
    (workers,) = rayjob(spec)["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    start, (container,) = workers["rayStartParams"], workers["template"]["spec"]["containers"]
    tasks = min(int(start["num-cpus"]), int(start["memory"]) // spec.memory_per_task_bytes)
    assert tasks == spec.cpus_per_worker
    resources = container["resources"]
    assert resources["requests"] == resources["limits"]
    text = resources["limits"]["memory"]
    limit_bytes = int(text[:-2]) * 2**20 if text.endswith("Mi") else int(text)
    assert limit_bytes >= int(start["memory"]) + int(start["object-store-memory"]) + 2**29


def test_s3_credentials_are_variables_of_the_nodes_only() -> None:
    made = pods(rayjob(dataclasses.replace(SPEC, s3_credentials_secret="mlgo-s3", env={"AWS_REGION": "eu-central-1"})))
    for part in ("head", "workers"):
        (container,) = made[part]["containers"]
        assert container["envFrom"] == [{"secretRef": {"name": "mlgo-s3"}}]
        assert {"name": "AWS_REGION", "value": "eu-central-1"} in container["env"]
        kubernetes_validate.validate({"apiVersion": "v1", "kind": "Pod", "spec": made[part]}, "1.31", strict=True)
    assert "envFrom" not in made["submitter"]["containers"][0]
    with pytest.raises(UserError, match="cannot be the Secret"):
        dataclasses.replace(SPEC, s3_credentials_secret="No Secret")


def test_queue_gets_a_cluster_of_fixed_size() -> None:
    """Kueue's webhook refuses RayJobs with an autoscaler."""
    job = rayjob(dataclasses.replace(SPEC, queue="team", min_workers=1, max_workers=5))
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    cluster = job["spec"]["rayClusterSpec"]
    (group,) = cluster["workerGroupSpecs"]
    assert not {"enableInTreeAutoscaling", "autoscalerOptions"} & cluster.keys()
    assert (group["minReplicas"], group["replicas"], group["maxReplicas"]) == (5, 5, 5)
    assert str(pods(job)).find("serviceAccountToken") == -1
    assert "kueue" not in str(rayjob(SPEC))


@given(st.lists(arguments, min_size=1, max_size=5))
def test_entrypoint_survives_shell_parsing(argv: list[str]) -> None:
    spec = dataclasses.replace(SPEC, entrypoint=("printf", r"%s\0", *argv))
    command = rayjob(spec)["spec"]["entrypoint"]
    done = subprocess.run(["/bin/bash", "-ce", "--", command], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == argv


@pytest.mark.parametrize("part", ["head", "workers", "submitter"])
def test_pods_meet_the_restricted_standard_and_write_only_to_volumes(part: str) -> None:
    pod = pods(rayjob(SPEC))[part]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["seccompProfile"]
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounted = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    # Only the autoscaler gets the service account's token, not the trainer, which unpickles data.
    others = {"kubernetes-api"} if part == "head" else set()
    assert {volume["name"] for volume in pod["volumes"]} - set(mounted.values()) == others and "/tmp" in mounted
    assert pod["automountServiceAccountToken"] is False and str(SERVICE_ACCOUNT) not in mounted


def test_workers_are_on_spot_nodes_and_the_head_is_not() -> None:
    by_group = pods(rayjob(dataclasses.replace(SPEC, spot=GKE_SPOT)))
    label, value = GKE_SPOT
    assert by_group["workers"]["nodeSelector"] == {label: value}
    (toleration,) = by_group["workers"]["tolerations"]
    assert (toleration["key"], toleration["value"], toleration["effect"]) == (label, value, "NoSchedule")
    affinity = by_group["head"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    ((expression,),) = [term["matchExpressions"] for term in affinity["nodeSelectorTerms"]]
    assert expression == {"key": label, "operator": "NotIn", "values": [value]}
    assert "tolerations" not in by_group["head"] and "nodeSelector" not in by_group["head"]
    assert "affinity" not in pods(rayjob(SPEC))["head"]


def test_the_head_compiles_nothing() -> None:
    head = rayjob(SPEC)["spec"]["rayClusterSpec"]["headGroupSpec"]
    assert head["rayStartParams"]["num-cpus"] == "0"


def test_every_node_has_the_node_settings() -> None:
    """But Ray's job supervisor, on the head, must see the trainer's status: SIGCHLD is not ignored there."""
    for part, subreaper in (("head", "false"), ("workers", "true")):
        (container,) = pods(rayjob(SPEC))[part]["containers"]
        env = {variable["name"]: variable["value"] for variable in container["env"]}
        assert (NODE_SETTINGS | {SUBREAPER: subreaper}).items() <= env.items()


def test_job_name_is_the_same_for_the_same_training() -> None:
    identity = {"root_dir": "gs://b/ppo", "minutes": "60"}
    name = job_name(identity)
    assert name == job_name(dict(reversed(identity.items()))) != job_name({**identity, "minutes": "61"})
    assert dataclasses.replace(SPEC, name=name).name == name


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": "PPO"}, "'PPO' cannot be the name of a RayJob"),
        ({"name": "1ppo"}, "cannot be the name"),
        ({"name": "p" * 48}, "cannot be the name"),
        ({"namespace": "a_b"}, "cannot be the namespace"),
        ({"service_account": ""}, "cannot be the service account"),
        ({"queue": "Team A"}, "cannot be the queue"),
        ({"image": "mlgo-cluster:latest"}, "has no digest"),
        ({"image": "mlgo-cluster@sha256:12"}, "has no digest"),
        ({"entrypoint": ()}, "no command"),
        ({"entrypoint": ("mlgo", "$(HOME)")}, "does not survive"),
        ({"entrypoint": ("mlgo", "a\nb")}, "does not survive"),
        ({"min_workers": -1}, "min_workers of a RayJob is -1"),
        ({"max_workers": 0}, "max_workers of a RayJob is 0"),
        ({"min_workers": 9, "max_workers": 8}, "at least 9 and at most 8"),
        ({"cpus_per_worker": 0}, "cpus_per_worker"),
        ({"memory_per_task_bytes": 1024}, "memory_per_task_bytes of a RayJob is 1024"),
        ({"deadline_s": 2**31}, "deadline_s"),
        ({"env": {"A-B": "1"}}, "no environment variable"),
        ({"env": {"RAY_AUTH_TOKEN": "1"}}, "KubeRay sets RAY_AUTH_TOKEN itself"),
    ],
)
def test_invalid_specs_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError) as error:
        dataclasses.replace(SPEC, **change)
    assert words in error.value.problem and error.value.remedy


def test_ray_start_supports_the_options() -> None:
    """KubeRay passes them as flags to `ray start` of the version in the manifest."""
    ray = pytest.importorskip("ray")
    from ray.scripts.scripts import start

    assert ray.__version__ == RAY_VERSION
    options = {option.removeprefix("--") for parameter in start.params for option in parameter.opts}
    cluster = rayjob(SPEC)["spec"]["rayClusterSpec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert set(group["rayStartParams"]) <= options
