"""`mlgo ppo --workers rayjob`: the same command line becomes a RayJob's, and nothing of it is downloaded here."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest

from components.platform.errors import UserError
from components.platform.rayjob.kubernetes import ApiServer
from components.platform.rayjob.options import parse_settings, parse_spot
from components.platform.rayjob.spec import GKE_SPOT, RayJobSpec
from components.platform.rayjob.step_lease import LEASE_VARIABLE, RUN_VARIABLE
from components.platform.storage import publish
from components.platform.storage.object_storage.gcs import EMULATOR_VARIABLE, bucket_of
from components.platform.storage.shared_state.versioned_json import read_versioned
from components.platform.storage.uri import ObjectUri, mirror
from components.platform.workers import LocalPool, make_pool
from components.platform.workers.settings import CACHE_GB
from components.ppo import run_on_cluster
from components.ppo.__main__ import main
from components.ppo.config import PRESETS
from tests.servers.kubernetes_server import SUCCEEDS, Cluster, kubernetes_server, make_certificate

IMAGE = "r/mlgo-cluster@sha256:" + "a" * 64
INPUTS = ("corpus", "toolchain", "trace", "warmstart")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A pod's surroundings: an API server by its service account."""
    cluster = Cluster([SUCCEEDS])
    account = tmp_path / "account"
    account.mkdir()
    certificate = make_certificate(account)
    shutil.copyfile(certificate[0], account / "ca.crt")
    (account / "token").write_text(cluster.token)
    with kubernetes_server(cluster, *certificate) as port:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
        monkeypatch.setattr(run_on_cluster, "ApiServer", partial(ApiServer, account))
        monkeypatch.setattr("components.platform.rayjob.submit.POLL_S", 0.01)
        monkeypatch.setattr(run_on_cluster, "run_rayjob", partial(run_on_cluster.run_rayjob, poll_s=0.01))
        yield cluster


def put(uri: ObjectUri, content: str) -> None:
    """An artifact that is in the bucket only."""
    directory = mirror(uri)
    with publish(directory, "corpus") as partial_:
        (partial_ / "file").write_text(content)
    shutil.rmtree(directory)


@pytest.fixture
def arguments(gs_uri: ObjectUri) -> dict[str, str]:
    """The step's options, with everything that they name there; also what would be made."""
    for name in (*INPUTS, "output"):
        put(gs_uri / name, name)
    return {
        **{f"--{name}": str(gs_uri / name) for name in (*INPUTS, "root-dir", "output")},
        "--workers": "rayjob:3",
        "--cluster-image": IMAGE,
        "--preset": "tiny",
        "--minutes": "7",
    }


def step(arguments: dict[str, str], *flags: str) -> None:
    main.main([word for pair in arguments.items() for word in pair] + [*flags], standalone_mode=False)


def job(cluster: Cluster) -> dict[str, Any]:
    """The one that is there; taken away, so that the next one is the only one, too."""
    ((_name, entry),) = cluster.jobs.items()
    cluster.jobs.clear()
    document: dict[str, Any] = entry["job"]
    return document


def test_trainer_command_has_all_options(
    cluster: Cluster, arguments: dict[str, str], gs_uri: ObjectUri, cache: Path
) -> None:
    bucket_of(gs_uri).blob(f"{gs_uri.path}/names.json").upload_from_string("[]")
    step(
        {**arguments, "--oversample-modules": str(gs_uri / "names.json"), "--gin-binding": "A.b = 'c d'"},
        "--fingerprint-root-dir",
    )
    words = shlex.split(job(cluster)["spec"]["entrypoint"])
    assert words[:4] == ["mlgo", "ppo", "--workers", "ray:auto"]
    command_line = words[2:]
    words.remove("--fingerprint-root-dir")
    options = dict(zip(words[2::2], words[3::2], strict=True))
    for name in (*INPUTS, "root-dir", "output"):
        assert options[f"--{name}"] == arguments[f"--{name}"]
    assert options["--oversample-modules"] == str(gs_uri / "names.json") and options["--gin-binding"] == "A.b = 'c d'"
    # A preset is expanded, and explicit options override it.
    assert options["--modules"] == str(PRESETS["tiny"]["modules"]) and float(options["--minutes"]) == 7
    assert "--iterations" not in options, "the preset's limit is replaced"
    assert not {"--preset", "--cluster-image", "--spot-node-label", "--ray-cluster-options"} & set(options)
    # The step parses this command line.
    main.make_parser(click.Context(main)).parse_args(command_line)
    # Only the finished policy was downloaded, to where the launcher reads its report.
    assert [path.parent for path in cache.rglob("file")] == [mirror(gs_uri / "output")]


def test_cluster_options_determine_the_rayjob(
    cluster: Cluster, arguments: dict[str, str], monkeypatch: pytest.MonkeyPatch, storage_host: str
) -> None:
    monkeypatch.setenv(CACHE_GB, "40")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://mlflow:5000")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "secret")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "sizes")
    monkeypatch.setenv("MLGO_SPOT_NODE_LABEL", "=".join(GKE_SPOT))
    monkeypatch.setenv("MLGO_CLUSTER_IMAGE", IMAGE)
    del arguments["--cluster-image"]
    step({**arguments, "--ray-cluster-options": "cpus_per_worker=16,credentials_secret=key"})
    made = job(cluster)
    assert made["metadata"]["namespace"] == "mlgo"
    (group,) = made["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    pod = group["template"]["spec"]
    assert (group["maxReplicas"], group["rayStartParams"]["num-cpus"]) == (3, "16")
    assert pod["nodeSelector"] == dict([GKE_SPOT]) and "credentials" in {v["name"] for v in pod["volumes"]}
    (container,) = pod["containers"]
    env = {variable["name"]: variable["value"] for variable in container["env"]}
    assert container["image"] == IMAGE == env["MLGO_IMAGE_REFERENCE"]
    assert (env[CACHE_GB], env[EMULATOR_VARIABLE]) == ("40", storage_host)
    tracking = {name: value for name, value in env.items() if name.startswith("MLFLOW")}
    assert tracking == {"MLFLOW_TRACKING_URI": "http://mlflow:5000", "MLFLOW_EXPERIMENT_NAME": "sizes"}


def test_rayjob_of_a_run_has_its_id_and_a_lease(
    cluster: Cluster, arguments: dict[str, str], gs_uri: ObjectUri, monkeypatch: pytest.MonkeyPatch
) -> None:
    step(arguments)
    by_hand = job(cluster)
    monkeypatch.setenv(RUN_VARIABLE, "2f0a8b1e-5d1c")
    step(arguments)
    made = job(cluster)
    assert made["metadata"]["name"] == by_hand["metadata"]["name"], "the lease does not change what is trained"
    assert made["metadata"]["labels"]["pipeline/runid"] == "2f0a8b1e-5d1c"
    assert "pipeline/runid" not in by_hand["metadata"]["labels"] and LEASE_VARIABLE not in str(by_hand)
    (container,) = made["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    env = {variable["name"]: variable["value"] for variable in container["env"]}
    assert env[LEASE_VARIABLE] == f"{gs_uri}/output.step"
    assert read_versioned(env[LEASE_VARIABLE]).content == {"step": "follows"}


def test_job_name_depends_on_inputs_and_options(cluster: Cluster, arguments: dict[str, str], gs_uri: ObjectUri) -> None:
    def name(**more: str) -> str:
        step(arguments | {f"--{option.replace('_', '-')}": value for option, value in more.items()})
        return str(job(cluster)["metadata"]["name"])

    first = name()
    assert (
        name()
        == name(workers="rayjob:64")
        == name(spot_node_label="a=b")
        == name(ray_cluster_options="retries=3")
        == first
    )
    names = [first, name(seed="2"), name(minutes="8"), name(preset="demo"), name(cluster_image=IMAGE[:-1] + "b")]
    names.append(name(gin_binding="PpoParameters.learning_rate=1e-4"))
    put(gs_uri / "trace", "another")
    names.append(name())
    assert len(set(names)) == len(names)


def test_successful_rayjob_is_not_repeated_and_deleted_at_the_end(
    cluster: Cluster, arguments: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A namespace has a quota of RayJobs, also of those that have ended."""
    cluster.denied.add("DELETE")
    step(arguments)
    assert "stays, and counts towards the quota" in capsys.readouterr().out
    cluster.denied.clear()
    step(arguments)
    assert cluster.created == 1 and "exists already; following it" in capsys.readouterr().out
    assert "deletionTimestamp" in job(cluster)["metadata"]


def test_policy_replaces_what_is_in_its_mirror(cluster: Cluster, arguments: dict[str, str], gs_uri: ObjectUri) -> None:
    """As a publication does: a cache must not end a training of hours."""
    directory = mirror(gs_uri / "output")
    directory.mkdir(parents=True)
    (directory / "left").write_text("")
    step(arguments)
    assert (directory / "manifest.json").is_file() and not (directory / "left").exists()


def test_success_without_policy_is_an_error(cluster: Cluster, arguments: dict[str, str], gs_uri: ObjectUri) -> None:
    with pytest.raises(UserError, match=r"has succeeded, but there is no policy at gs://.*\n.*kubectl delete rayjob"):
        step({**arguments, "--output": str(gs_uri / "nothing")})


@pytest.mark.parametrize("option", [*(f"--{name}" for name in (*INPUTS, "root-dir", "output")), "--oversample-modules"])
def test_local_path_is_refused_by_option(
    cluster: Cluster, arguments: dict[str, str], tmp_path: Path, option: str
) -> None:
    (tmp_path / "here").mkdir()
    with pytest.raises(UserError, match=rf"{option} .*/here is on this machine.*\n.*{option} gs://BUCKET/PATH"):
        step({**arguments, option: str(tmp_path / "here")})
    assert cluster.asked == []


SAMPLED = {"--credit-assignment": "function", "--algorithm": "ppo"}
Change = Callable[[dict[str, str]], object]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda a: a.pop("--cluster-image"), "no image for the nodes"),
        (lambda a: a.update({"--cluster-image": "mlgo-cluster:1"}), "has no digest"),
        (lambda a: a.update({"--corpus": a["--corpus"] + "x"}), "corpusx is not a finished artifact"),
        (lambda a: a.update({"--oversample-modules": a["--corpus"] + "x"}), "there is nothing at gs://.*corpusx"),
        (lambda a: a.update({"--spot-node-label": "gke"}), "--spot-node-label 'gke' is not of the form LABEL=VALUE"),
        (lambda a: a.update({"--ray-cluster-options": "nodes=4"}), "no setting 'nodes'"),
        (lambda a: a.update({"--ray-cluster-options": "retries=many"}), "'many' is no whole number"),
        (lambda a: a.update({"--ray-cluster-options": "cpus_per_worker=0"}), "cpus_per_worker of a RayJob is 0"),
        (lambda a: a.update({"--workers": "rayjob:0"}), "--workers 'rayjob:0' is not known"),
        (lambda a: a.update({"--samples": "0"}), "0 is not in the range"),
        (lambda a: a.update(SAMPLED | {"--samples": "1"}), "--samples 1: a sample is compared with others"),
        (lambda a: a.update({"--credit-assignment": "module"}), "learns from --credit-assignment counterfactual"),
    ],
)
def test_bad_options_are_refused_before_any_request(
    cluster: Cluster, arguments: dict[str, str], change: Change, named: str
) -> None:
    change(arguments)
    with pytest.raises((UserError, click.UsageError), match=named):
        step(arguments)
    assert cluster.asked == []


def test_running_outside_of_a_pod_is_refused(arguments: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(UserError, match="not a pod with a Kubernetes service account"):
        step(arguments)


def test_other_steps_use_local_workers(capsys: pytest.CaptureFixture[str]) -> None:
    pool = make_pool("rayjob:16")
    assert isinstance(pool, LocalPool)
    pool.close()
    assert "this step compiles on its own machine" in capsys.readouterr().out


def test_all_other_fields_of_the_spec_can_be_set() -> None:
    text = "namespace=n,service_account=s,min_workers=1,cpus_per_worker=2,memory_per_task_bytes=3000000000"
    settings = parse_settings(text)
    spec = RayJobSpec("ppo-1", image=IMAGE, entrypoint=("mlgo",), spot=parse_spot("a=b"), **settings)
    assert (spec.namespace, spec.memory_per_task_bytes, spec.spot) == ("n", 3_000_000_000, ("a", "b"))
    assert parse_settings("") == {} and parse_spot("") is None
    assert json.dumps(settings)
