"""Tests of `mlgo pipeline submit | watch | cancel | retry | schedule | upload` with a fake KFP server."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any, get_args

import pytest
from click.testing import CliRunner

from components.platform.errors import UserError
from pipelines.cli.main import cli
from pipelines.spec import COMPILED, load_spec
from pipelines.submit.artifacts.root import with_artifact_root
from pipelines.submit.kfp import KfpPipelines
from pipelines.submit.kfp_client import KfpAddress
from pipelines.submit.options import Package, RunRequest, SubmitOptions
from pipelines.submit.server import ScheduleChange
from tests.pipelines.submit.conftest import ROOT, Mlgo
from tests.servers.http_server import JsonHandler, raw_server, serving
from tests.servers.storage_server import storage_server
from tests.support.schemas import PublishedClients

LastRequest = Callable[[str], dict[str, Any]]
SPEC = load_spec(COMPILED)
UNPRIVILEGED = {"securityContext": {"runAsNonRoot": True}}
"""Settings of every step's pod."""


def stored(pipeline: str, name: str = "job-1", **options: Any) -> RunRequest:
    """Return the run of a stored pipeline."""
    chosen = SubmitOptions(SPEC, stored_pipeline=pipeline, pipeline_root="gs://bucket/kfp", **options)
    return RunRequest(chosen, None, {"recipe": "demo"}, name)


def test_run_is_submitted(submit: Mlgo, host: str) -> None:
    done = submit("--host", host, "--param", "recipe=demo", "--param", "seed=3", "--name", "n")
    assert done.returncode == 0 and f"{host}/#/runs/details/run-" in done.stdout, done.stderr


@pytest.mark.timeout(300)
def test_failed_run_gives_exit_status_1(submit: Mlgo, host: str) -> None:
    done = submit("--host", host, "--param", "recipe=demo", "--param", "preset=tiny", "--wait")
    assert "[warmstart] succeeded" in done.stdout and "[ppo] failed" in done.stdout
    assert done.returncode == 1 and "step ppo failed" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.timeout(300)
def test_lost_answers_are_retried(submit: Mlgo, host: str) -> None:
    done = submit("--host", host, "--param", "recipe=demo", "--name", "lossy", "--wait")
    assert done.returncode == 0 and "[evaluation] succeeded" in done.stdout, done.stderr
    assert "503 no healthy upstream; retrying" in done.stdout and "Traceback" not in done.stderr


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("name", "named"), [("gone", "503 no healthy upstream"), ("forbidden", "403 no access")])
def test_run_continues_when_polling_fails(
    submit: Mlgo, host: str, monkeypatch: pytest.MonkeyPatch, name: str, named: str
) -> None:
    monkeypatch.setenv("MLGO_POLL_PATIENCE_S", "3")
    done = submit("--host", host, "--param", "recipe=demo", "--name", name, "--wait")
    assert done.returncode == 1 and named in done.stderr and "Traceback" not in done.stderr, done.stderr
    run = re.search(r"/#/runs/details/(run-\d+)", done.stdout)
    assert run and f"; the run {run[1]} itself continues" in done.stderr and f"see it at {host}/#/runs" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt_ends_polling_but_not_the_run(host: str, images: Path, number: signal.Signals) -> None:
    command = ["pipeline", "submit", "--host", host, "--images", str(images), "--param", "recipe=demo", "--wait"]
    command = [sys.executable, "-m", "pipelines", *command]
    waiting = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert waiting.stdout is not None
    said = ""
    while "[corpus] succeeded" not in said:
        line = waiting.stdout.readline()
        assert line, waiting.communicate()[1]
        said += line
    waiting.send_signal(number)
    errors = waiting.communicate(timeout=60)[1]
    run = re.search(r"/#/runs/details/(run-\d+)", said)
    assert (
        run
        and f"interrupted; the run {run[1]} itself continues" in errors
        and "run the same command again" not in errors
    )
    assert waiting.returncode == 128 + number


def test_servers_rejection_is_reported(submit: Mlgo, host: str, images: Path) -> None:
    images.write_text(images.read_text().replace("1" * 64, "abc"))
    done = submit("--host", host, "--param", "recipe=demo")
    assert (
        done.returncode == 1 and "refuses the request: 400 invalid run" in done.stderr and "is no digest" in done.stderr
    )


def test_notify_secret_is_submitted(submit: Mlgo, host: str) -> None:
    options = ("--host", host, "--param", "recipe=demo", "--name", "notified")
    done = submit(*options, "--notify-secret", "mlgo-notify")
    assert done.returncode == 0, done.stderr
    done = submit(*options)
    assert done.returncode == 1 and "no Secret is named" in done.stderr, "the fake server checks for it"


def test_commit_and_its_secret_are_submitted(submit: Mlgo, host: str, last_request: LastRequest) -> None:
    commit = f"https://api.github.com/repos/octo/hello/commits/{'a' * 40}"
    options = ("--host", host, "--param", "recipe=demo", "--commit-secret", "mlgo-commit", "--commit", commit)
    done = submit(*options)
    assert done.returncode == 0, done.stderr
    sent = last_request("runs")["body"]["pipeline_spec"]
    container = sent["pipeline_spec"]["deploymentSpec"]["executors"]["exec-finish"]["container"]
    assert {"name": "MLGO_COMMIT", "value": commit} in container["env"]
    executors = sent["platform_spec"]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert [secret["secretName"] for secret in executors["exec-finish"]["secretAsEnv"]] == ["mlgo-commit"]


def test_small_lowers_the_requests_that_are_sent(submit: Mlgo, host: str, last_request: LastRequest) -> None:
    def request(task: str) -> str:
        spec = last_request("runs")["body"]["pipeline_spec"]
        container = spec.get("pipeline_spec", spec)["deploymentSpec"]["executors"][f"exec-{task}"]["container"]
        return str(container["resources"]["resourceCpuRequest"])

    assert submit("--host", host, "--param", "recipe=demo").returncode == 0
    assert (request("ppo"), request("finish")) == ("4000m", "100m")
    assert submit("--host", host, "--param", "recipe=demo", "--small").returncode == 0
    assert (request("ppo"), request("finish")) == ("500m", "100m")


def test_only_rayjob_run_requires_cluster_image(submit: Mlgo, host: str, images: Path) -> None:
    options = ("--host", host, "--param", "recipe=demo", "--service-account", "mlgo-steps")
    ray = (
        "--param",
        "workers=rayjob:16",
        "--param",
        "spot_node_label=a=b",
        "--param",
        "ray_cluster_options=cpus_per_worker=8",
    )
    done = submit(*options)
    assert done.returncode == 0, done.stderr
    done = submit(*options, *ray)
    assert done.returncode == 1 and "the image cluster has no digest" in done.stderr and "build --all" in done.stderr
    document = json.loads(images.read_text())
    document["cluster"] = document["training"] | {"reference": "r/cluster@sha256:" + "3" * 64}
    images.write_text(json.dumps(document))
    done = submit(*options, *ray)
    assert done.returncode == 0, done.stderr
    done = submit("--vertex", "p/r", "--pipeline-root", "gs://bucket/r", *options[2:4], *ray)
    assert done.returncode == 1 and "submit to a KFP server" in done.stderr


def test_sdk_pipeline_is_submitted_with_its_image(
    submit: Mlgo, host: str, images: Path, last_request: LastRequest
) -> None:
    options = ("--host", host, "--pipeline", "sdk", "--param", "targets=X86,ARM")
    done = submit(*options)
    assert done.returncode == 1 and "the image sdk has no digest" in done.stderr
    document = json.loads(images.read_text())
    document["sdk"] = document.pop("training") | {"reference": "r/sdk@sha256:" + "3" * 64}
    images.write_text(json.dumps(document))
    done = submit(*options, "--param", "llvm_major=22", "--param", "llvm_source=git:llvmorg-22.1.8")
    assert done.returncode == 0, done.stderr
    sent = last_request("runs")["body"]
    assert f"'image': '{document['sdk']['reference']}'" in str(sent["pipeline_spec"])
    assert sent["runtime_config"]["parameters"]["targets"] == "X86,ARM"


def test_smoke_test_names_the_image_of_rays_nodes_if_it_was_pushed(
    submit: Mlgo, host: str, images: Path, last_request: LastRequest
) -> None:
    options = ("--host", host, "--pipeline", "smoke", "--param", "fail_once=no")
    done = submit(*options)
    assert done.returncode == 0, done.stderr
    sent = last_request("runs")["body"]
    assert "MLGO_CLUSTER_IMAGE" not in str(sent["pipeline_spec"])
    assert sent["runtime_config"]["parameters"] == {"fail_once": "no"}
    document = json.loads(images.read_text())
    document["cluster"] = document["training"] | {"reference": "r/cluster@sha256:" + "3" * 64}
    images.write_text(json.dumps(document))
    done = submit(*options)
    assert done.returncode == 0, done.stderr
    variables = json.dumps(
        last_request("runs")["body"]["pipeline_spec"], sort_keys=True
    )  # a message's map has no order
    assert '{"name": "MLGO_CLUSTER_IMAGE", "value": "r/cluster@sha256:3' in variables
    assert '"name": "MLGO_RUN_ID"' in variables, "with which the RayJob is found"
    done = submit(*options, "--param", "fail_once=perhaps")
    assert done.returncode == 1 and "fail_once=perhaps" in done.stderr


def test_unreachable_server_is_reported(submit: Mlgo) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        done = submit("--host", url, "--param", "recipe=demo")
    assert done.returncode == 1 and f"KFP at {url} does not answer" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("server", [("--host", "http://x"), ("--vertex", "p/r")])
def test_pipeline_root_in_missing_bucket_is_refused(
    submit: Mlgo, monkeypatch: pytest.MonkeyPatch, server: tuple[str, str]
) -> None:
    with storage_server("there") as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        done = submit(*server, "--pipeline-root", "gs://missing/r", "--param", "recipe=demo")
    assert done.returncode == 1 and "--pipeline-root gs://missing/r" in done.stderr, done.stderr
    assert "create the bucket" in done.stderr and "mlgo-check" not in done.stderr


@pytest.mark.parametrize(("bucket", "warned"), [("forbidden", True), ("there", False)])
def test_pipeline_root_that_this_account_cannot_read_is_a_warning(
    submit: Mlgo, host: str, monkeypatch: pytest.MonkeyPatch, bucket: str, warned: bool
) -> None:
    with storage_server("there") as url:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", url)
        done = submit("--host", host, "--pipeline-root", f"gs://{bucket}/r", "--param", "recipe=demo")
    assert done.returncode == 0, done.stderr
    assert ("the steps' account may be another: gs://forbidden/r: access is denied" in done.stdout) == warned
    assert "mlgo-check" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "exactly one of --host and --vertex is needed"),
        (("--host", "http://x", "--param", "seed=many"), "seed is 'many'"),
        (("--host", "http://x", "--param", "seed"), "not of the form NAME=VALUE"),
        (("--vertex", "p/r"), "no --pipeline-root"),
        (("--vertex", "p/r", "--pipeline-root", "gs://bucket/r"), "none given"),
        (("--host", "http://x", "--param", "recipe=demo", "--pipeline-root", "ftp://b/r"), "--pipeline-root ftp://b/r"),
    ],
)
def test_invalid_options_are_refused_before_submission(submit: Mlgo, arguments: tuple[str, ...], named: str) -> None:
    done = submit(*arguments)
    assert done.returncode == 1 and named in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_images_without_digest_are_refused(submit: Mlgo, images: Path) -> None:
    images.write_text(images.read_text().replace("r/training@", ""))
    done = submit("--host", "http://x", "--param", "recipe=demo")
    assert done.returncode == 1 and "mlgo images push" in done.stderr


def test_missing_kfp_is_reported_with_remedy(
    mlgo: Mlgo, submit: Mlgo, host: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only compiling needs it."""
    monkeypatch.setenv("MLGO_PIPELINES_PYTHON", "/nowhere")
    done = mlgo("compile", "--output", tmp_path / "training.yaml")
    assert done.returncode == 1 and "mlgo setup pipelines" in done.stderr and "Traceback" not in done.stderr
    run_of(submit("--host", host, "--param", "recipe=demo"))


def server_of(host: str) -> KfpPipelines:
    return KfpPipelines(KfpAddress(host, token="abc"))


def run_of(done: subprocess.CompletedProcess[str]) -> str:
    match = re.search(r"/#/runs/details/(run-\d+)", done.stdout)
    assert done.returncode == 0 and match, done.stderr
    return match[1]


def test_run_has_the_chosen_settings(submit: Mlgo, host: str, last_request: LastRequest) -> None:
    options = ("--param", "recipe=demo", "--name", "n", "--pipeline-root", "gs://bucket/kfp", "--service-account", "s")
    run_of(submit("--host", host, *options, "--experiment", "mine", "--no-cache"))
    assert last_request("experiments")["body"]["display_name"] == "mine"
    run = last_request("runs")["body"]
    assert run["display_name"] == "n" and run["service_account"] == "s" and last_request("runs")["token"] is None
    assert run["runtime_config"] == {"parameters": {"recipe": "demo"}, "pipeline_root": "gs://bucket/kfp"}
    assert "enableCache': True" not in str(run["pipeline_spec"])
    run_of(submit("--host", host, *options))
    assert "enableCache': True" in str(last_request("runs")["body"]["pipeline_spec"]), "the pipeline's own settings"


def test_run_on_server_with_several_users(
    submit: Mlgo, host: str, last_request: LastRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("good\n")
    options = ("--host", f"{host}/multi", "--param", "recipe=demo", "--existing-token-file", tmp_path / "token")
    run_of(submit(*options, "--namespace", "team", "--experiment", "shared"))
    assert last_request("experiments")["body"] == {"display_name": "shared", "namespace": "team"}
    assert last_request("runs")["token"] == "Bearer good"
    monkeypatch.setenv("HOME", str(tmp_path))  # where kfp may know a namespace
    done = submit(*options)
    assert done.returncode == 1 and "needs the namespace of one" in done.stderr and "--namespace" in done.stderr


def test_run_is_watched_until_it_succeeds(mlgo: Mlgo, submit: Mlgo, host: str) -> None:
    run = run_of(submit("--host", host, "--param", "recipe=demo"))
    done = mlgo("watch", run, "--host", host)
    assert done.returncode == 0 and "[evaluation] succeeded" in done.stdout, done.stderr
    assert "tensorboard" not in done.stdout, "the pipeline root is unknown"
    done = mlgo("cancel", run, "--host", host)
    assert done.returncode == 1 and f"the run {run} has ended: it succeeded" in done.stderr


def test_canceled_run_has_its_own_exit_status(mlgo: Mlgo, submit: Mlgo, host: str) -> None:
    run = run_of(submit("--host", host, "--param", "recipe=demo"))
    done = mlgo("cancel", run, "--host", host)
    assert done.returncode == 0 and f"canceling: {run}" in done.stdout, done.stderr
    done = mlgo("watch", run, "--host", host)
    assert done.returncode == 3 and f"the run {run} was canceled" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["watch", "cancel", "retry"])
def test_unknown_run_is_reported(mlgo: Mlgo, host: str, command: str) -> None:
    done = mlgo(command, "run-0", "--host", host)
    assert done.returncode == 1 and done.stderr.startswith(f"error: KFP at {host} has no run run-0\n  remedy: ")
    assert done.stderr.count("\n") == 2 and done.stdout == ""


def test_page_of_run_is_no_id(mlgo: Mlgo) -> None:
    done = mlgo("cancel", "http://x/#/runs/details/1", "--host", "http://x")
    assert done.returncode == 1 and "is no ID of a run" in done.stderr and "Traceback" not in done.stderr


def test_schedule_has_six_fields_and_no_backlog(mlgo: Mlgo, host: str, images: Path, last_request: LastRequest) -> None:
    options = ("--host", host, "--images", images, "--param", "recipe=demo", "--name", "weekly")
    done = mlgo("schedule", *options, "--cron", "0 3 * * mon", "--max-concurrency", 2, "--no-cache")
    assert done.returncode == 0 and f"{host}/#/recurringrun/details/schedule-" in done.stdout, done.stderr
    body = last_request("recurringruns")["body"]
    assert body["trigger"] == {"cron_schedule": {"cron": "0 0 3 * * mon"}}
    assert body["max_concurrency"] == "2" and body["no_catchup"] is True and body["mode"] == "ENABLE"
    assert body["display_name"] == "weekly" and body["runtime_config"]["parameters"] == {"recipe": "demo"}


@pytest.mark.parametrize(
    ("cron", "named"), [("weekly", "1 fields"), ("TZ=Europe/Berlin 0 3 * * 1", "KFP has no time zone")]
)
def test_invalid_schedule_is_refused_before_a_request(mlgo: Mlgo, images: Path, cron: str, named: str) -> None:
    done = mlgo("schedule", "--host", "http://x", "--images", images, "--param", "recipe=demo", "--cron", cron)
    assert done.returncode == 1 and named in done.stderr and "Traceback" not in done.stderr


def test_upload_creates_pipeline_and_then_versions(
    mlgo: Mlgo, host: str, images: Path, last_request: LastRequest, tmp_path: Path
) -> None:
    (tmp_path / "overrides.yaml").write_text("ppo: {node_selector: {pool: large}}")
    pipeline = ("--images", images, "--overrides", tmp_path / "overrides.yaml", "--ttl-hours", "24")
    options = ("upload", "--host", host, *pipeline, "--name", "up", "--tag", "team=a", "--tag", "stage=b")
    done = mlgo(*options, "--version-name", "broken")
    assert done.returncode == 1 and "409 Failed to create a pipeline version" in done.stderr
    created = last_request("pipelines")
    done = mlgo(*options, "--version-name", "1")
    assert done.returncode == 0 and re.search(r"/#/pipelines/details/p-\d+/version/v-1\b", done.stdout), done.stderr
    again = last_request("pipelines")
    assert again["body"] == created["body"] == {"display_name": "up"}, "the first one was deleted with its version"
    uploads = last_request("pipelines/upload_version")
    assert json.loads(uploads["query"]["tags"]) == {"team": "a", "stage": "b"}
    platform = uploads["body"]["platform_spec"]["platforms"]["kubernetes"]
    assert platform["pipelineConfig"] == {"resourceTtlOnCompletion": 24 * 3600}
    executors = platform["deploymentSpec"]["executors"]
    assert executors.pop("exec-ppo") == {"nodeSelector": {"labels": {"pool": "large"}}, **UNPRIVILEGED}
    assert all(pod == UNPRIVILEGED for pod in executors.values())
    done = mlgo(*options, "--version-name", "1")
    assert (
        done.returncode == 1 and "the pipeline up has a version '1'" in done.stderr and "--version-name" in done.stderr
    )
    done = mlgo(*options, "--version-name", "2")
    assert done.returncode == 0 and "/version/v-2" in done.stdout, done.stderr


def test_overrides_reach_resources_and_pods(submit: Mlgo, host: str, last_request: LastRequest, tmp_path: Path) -> None:
    (tmp_path / "overrides.yaml").write_text(
        """
        default:
          tolerations: [{key: dedicated, value: mlgo, effect: NoSchedule}]
        ppo:
          cpu: {request: 500m, limit: 1.5}
          memory: {request: 512Mi, limit: 64G}
          accelerator: {type: nvidia.com/gpu}
          node_selector: {cloud.google.com/gke-nodepool: large}
          tolerations:
            - {operator: Exists, effect: NoExecute, toleration_seconds: 60}
          volumes: [{pvc: ccache, mount_path: /cache, sub_path: mlgo}]
        """
    )
    options = ("--host", host, "--param", "recipe=demo", "--name", "notified", "--notify-secret", "mlgo-notify")
    run_of(submit(*options, "--overrides", tmp_path / "overrides.yaml"))
    sent = last_request("runs")["body"]["pipeline_spec"]
    resources = sent["pipeline_spec"]["deploymentSpec"]["executors"]["exec-ppo"]["container"]["resources"]
    assert resources == {
        "cpuLimit": 1.5,
        "cpuRequest": 0.5,
        "memoryLimit": 64.0,
        "memoryRequest": 0.536870912,
        "resourceCpuLimit": "1.5",
        "resourceCpuRequest": "500m",
        "resourceMemoryLimit": "64G",
        "resourceMemoryRequest": "512Mi",
        "accelerator": {"type": "nvidia.com/gpu", "count": "1", "resourceType": "nvidia.com/gpu", "resourceCount": "1"},
    }
    pods = sent["platform_spec"]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    dedicated = {"key": "dedicated", "operator": "Equal", "value": "mlgo", "effect": "NoSchedule"}
    claim = {"pvcNameParameter": {"runtimeValue": {"constant": "ccache"}}, "constant": "ccache"}
    assert pods["exec-ppo"] == {
        "nodeSelector": {"labels": {"cloud.google.com/gke-nodepool": "large"}},
        "tolerations": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": "60"}],
        "pvcMount": [{**claim, "mountPath": "/cache", "subPath": "mlgo"}],
        **UNPRIVILEGED,
    }
    assert pods["exec-trace"] == {"tolerations": [dedicated], **UNPRIVILEGED}
    assert set(pods["exec-finish"]) == {"tolerations", "secretAsEnv", *UNPRIVILEGED}


def test_labels_are_those_of_the_pods_of_all_steps(
    submit: Mlgo, host: str, last_request: LastRequest, tmp_path: Path
) -> None:
    """kfp-kubernetes' own protocol buffer reads them, in the fake server."""
    (tmp_path / "overrides.yaml").write_text("ppo: {machine_type: n2-highmem-16}")
    options = ("--param", "recipe=demo", "--label", "team=compilers", "--label", "example.com/cost-center=7")
    run_of(submit("--host", host, *options, "--overrides", tmp_path / "overrides.yaml"))
    sent = last_request("runs")["body"]["pipeline_spec"]
    pods = sent["platform_spec"]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    labels = {"podMetadata": {"labels": {"team": "compilers", "example.com/cost-center": "7"}}}
    selector = {"nodeSelector": {"labels": {"node.kubernetes.io/instance-type": "n2-highmem-16"}}}
    assert set(pods) == set(sent["pipeline_spec"]["deploymentSpec"]["executors"])
    assert pods.pop("exec-ppo") == labels | selector | UNPRIVILEGED
    assert all(pod == labels | UNPRIVILEGED for pod in pods.values())


def test_older_server_gets_only_settings_that_it_knows(
    submit: Mlgo, mlgo: Mlgo, host: str, images: Path, last_request: LastRequest, tmp_path: Path
) -> None:
    (tmp_path / "overrides.yaml").write_text("ppo: {volumes: [{pvc: a, mount_path: /a}]}")
    options = ("--host", f"{host}/interface", "--param", "recipe=demo", "--overrides", tmp_path / "overrides.yaml")
    run_of(submit(*options))
    sent = last_request("runs")["body"]["pipeline_spec"]
    pods = sent["platform_spec"]["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    assert "securityContext" not in str(pods) and set(pods["exec-ppo"]) == {"pvcMount"}
    (tmp_path / "overrides.yaml").write_text("ppo: {volumes: [{pvc: a, mount_path: /a, sub_path: b}]}")
    done = submit(*options)
    assert done.returncode == 1 and "ppo: volumes: sub_path needs KFP 2.16, and the server is 2.15" in done.stderr
    done = submit(*options[:4], "--deadline-hours", "1")
    assert done.returncode == 1 and "--deadline-hours needs KFP 2.17, and the server is 2.15" in done.stderr
    done = mlgo("upload", *options[:2], "--images", images, "--tag", "team=a")
    assert done.returncode == 1 and "--tag needs KFP 2.17, and the server is 2.15" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--label", "team"), "--label 'team' is not of the form KEY=VALUE"),
        (("--label", "team=a b"), "--label team=a b is no label of Kubernetes"),
        (("--label", "a..b/team=a"), "--label a..b/team=a is no label of Kubernetes"),
        (("--label", "team=a", "--label", "team=b"), "--label team is given twice"),
        (("--label", "/team=a"), "--label /team=a is no label of Kubernetes"),
        (("--label", "pipelines.kubeflow.org/cache=x"), "labels of pipelines.kubeflow.org are not for users"),
        (("--label", "pipeline/runid=x"), "labels of pipeline are not for users"),
        (("--network", "n"), "--network: the steps are in the cluster's network"),
        (("--encryption-key", "k"), "--encryption-key: the cluster's storage decides"),
        (("--existing-token-file", "f", "--in-cluster-token"), "are two tokens"),
        (("--host", "ftp://x"), "--host 'ftp://x' is not the URL of a server"),
    ],
)
def test_option_that_kfp_does_not_have_is_refused(submit: Mlgo, arguments: tuple[str, ...], named: str) -> None:
    done = submit("--host", "http://x", "--param", "recipe=demo", *arguments)
    assert done.returncode == 1 and named in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["submit", "upload", "schedule", "watch", "cancel", "retry"])
def test_help_of_each_command_has_example(mlgo: Mlgo, command: str) -> None:
    done = mlgo(command, "--help")
    assert done.returncode == 0 and f"  mlgo pipeline {command} " in done.stdout


def test_newest_version_of_stored_pipeline_is_started_once(
    mlgo: Mlgo, images: Path, host: str, last_request: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("1", "2"):
        mlgo("upload", "--host", host, "--name", "nightly", "--version-name", version, "--images", images)
    monkeypatch.setenv("KFP_TOKEN", "abc")
    options = ("--host", host, "--pipeline-root", "gs://bucket/kfp", "--param", "recipe=demo", "--param", "seed=3")
    done = mlgo("submit", *options, "--stored-pipeline", "nightly", "--service-account", "mlgo-steps", "--wait")
    assert done.returncode == 0 and f"{host}/#/runs/details/run-" in done.stdout, done.stderr
    assert "[evaluation] succeeded" in done.stdout
    run_id = run_of(done)
    ending = f"\nverdict on the modules: better (1.2%)\nartifacts: gs://bucket/kfp/mlgo-training/{run_id}\n"
    assert done.stdout.endswith(ending), done.stdout
    assert f"\ntraining curve: tensorboard --logdir gs://bucket/kfp/mlgo-training/{run_id}/ppo\n" in done.stdout
    request = last_request("runs")
    assert request["token"] == "Bearer abc" and request["body"]["service_account"] == "mlgo-steps"
    assert request["body"]["pipeline_version_reference"]["pipeline_version_id"] == "v-2"
    assert request["body"]["runtime_config"] == {
        "parameters": {"recipe": "demo", "seed": 3},
        "pipeline_root": "gs://bucket/kfp",
    }
    first, repeated = (server_of(host).send(stored("nightly")) for _attempt in range(2))
    assert first == repeated != server_of(host).send(stored("nightly", experiment="other"))


def test_requests_are_those_of_kfps_client(published: PublishedClients) -> None:
    """Each request is one that kfp_server_api sends, with the same query; but it takes a file only from a disk."""
    sent = []
    spec, state = {"pipelineInfo": {"name": "stored"}}, {"state": "RUNNING"}

    class Recorder(JsonHandler):
        lists: tuple[str, ...] = ("pipelines", "pipeline_versions")

        def do_GET(self) -> None:
            upload = "multipart" in self.headers.get("Content-Type", "")
            sent.append((self.command, self.path, None if upload else self.read_json()))
            name = {"tag_name": "2.17.0", "pipeline_id": "p-1", "pipeline_version_id": "v-1", "experiment_id": "e-1"}
            more = {"recurring_run_id": "s-1", "run_id": "run-1", "pipeline_spec": spec, "multi_user": True}
            listed = {key: [{**name, **more}] for key in self.lists}
            self.send_json({**name, **listed, **more, **state})

        do_POST = do_DELETE = do_GET

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Recorder)) as url:
        server = KfpPipelines(KfpAddress(url, namespace="team"))
        options = {"experiment": "weekly", "service_account": "mlgo-steps", "artifact_root": "s3://bucket/own"}
        spec["deploymentSpec"] = with_artifact_root(SPEC, "s3://bucket/own")["deploymentSpec"]
        server.send(stored("nightly", "job 1", **options))
        run = replace(stored(""), package=Package(SPEC, {"platforms": {"kubernetes": {"deploymentSpec": {}}}}))
        server.send(run)
        server.send_schedule(run, "0 0 3 * * 1", 2)
        assert server.run("run-1").spec == spec
        server.cancel("run-1")
        state["state"] = "FAILED"
        server.retry("run-1")
        Recorder.lists = ("experiments", "runs", "recurringRuns")
        assert list(server.runs()) and list(server.runs("weekly")) and server.schedules()
        Recorder.lists = ()
        with pytest.raises(UserError, match="no experiment"):
            list(server.runs("weekly"))
        for change in get_args(ScheduleChange):
            server.change_schedule("s-1", change)
        images = ",".join(f"{name}=r/{name}@sha256:{'1' * 64}" for name in ("toolchain", "training"))
        server.upload(SubmitOptions(SPEC, images), "1", "")
    for request in sent:
        if "upload_version" not in request[1]:
            published.check("kfp", *request)
    routes = {f"{method} {path.partition('?')[0].removeprefix('/apis/v2beta1/')}" for method, path, _body in sent}
    assert routes == {
        *(f"GET {route}" for route in ("healthz", "pipelines", "experiments", "runs", "runs/run-1")),
        *(f"GET pipelines/p-1/versions{version}" for version in ("", "/v-1")),
        *(f"POST {route}" for route in ("experiments", "runs", "runs/run-1:terminate", "runs/run-1:retry")),
        *(f"POST {route}" for route in ("recurringruns", "pipelines", "pipelines/upload_version")),
        *("GET recurringruns", "POST recurringruns/s-1:disable", "POST recurringruns/s-1:enable"),
        "DELETE recurringruns/s-1",
    }
    for wrong in ("pipelines?name=x", "run/run-1", "runs?pagesize=1"):
        with pytest.raises(ValueError, match=r"no method of the API|unexpected keyword argument"):
            published.check("kfp", "GET", f"/apis/v2beta1/{wrong}")


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"pipelines": 3}, "pipelines that are no list"),
        ({"pipelines": [3]}, "no pipeline_id"),
        ({"pipelines": [{"pipeline_id": "p"}], "pipeline_versions": [{}]}, "no pipeline_version_id"),
        (
            {"pipelines": [{"pipeline_id": "p"}], "pipeline_versions": [{"pipeline_version_id": "v"}]},
            "no experiment_id",
        ),
    ],
)
def test_unexpected_answer_about_stored_pipeline_is_refused(document: dict[str, Any], named: str) -> None:
    with raw_server() as server:
        body = json.dumps(document).encode()
        server.response = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(body), body)
        with pytest.raises(UserError, match=named):
            server_of(server.url).send(stored("nightly"))


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("", "has no pipelines named 'other'"),
        ("old", "version 2.5.0, older than 2.14"),
        ("multi", "refuses the request: 401"),
    ],
)
def test_stored_pipeline_needs_usable_server(host: str, kind: str, named: str) -> None:
    with pytest.raises(UserError, match=re.escape(named)):
        server_of(f"{host}/{kind}").send(stored("other"))
    with pytest.raises(UserError, match="does not answer"):
        server_of("http://127.0.0.1:1").send(stored("other"))


@pytest.mark.parametrize(
    "more",
    [
        ("--no-cache",),
        ("--notify-secret", "s"),
        ("--commit-secret", "s"),
        ("--label", "a=b"),
        ("--overrides", str(ROOT / "docs" / "examples" / "kfp-seaweedfs.yaml")),
    ],
)
def test_option_that_changes_stored_pipeline_is_refused(more: tuple[str, ...]) -> None:
    options = ["pipeline", "submit", "--host", "http://127.0.0.1:1", "--stored-pipeline", "nightly", *more]
    with pytest.raises(UserError, match=more[0]):
        CliRunner().invoke(cli, options, catch_exceptions=False, standalone_mode=False)
