"""Runs a RayJob exactly once, even if the step that runs it fails."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiException

from components.platform.errors import UserError
from components.platform.rayjob.kubernetes import ApiServer, error_of_refusal
from components.platform.rayjob.spec import RayJobSpec
from components.platform.rayjob.submit import DriverLog, end_rayjob, run_rayjob
from tests.servers.kubernetes_server import (
    FAILS,
    RAYJOBS,
    SUCCEEDS,
    Cluster,
    State,
    kubernetes_server,
    make_certificate,
    status,
)
from tests.support.crd import SCHEMAS, needs_schemas
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[4]
SPEC = RayJobSpec("ppo-1", "mlgo", "r/i@sha256:" + "a" * 64, ("mlgo", "ppo", "--minutes", "60"))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


class Place:
    """A pod's view of a cluster, and the cluster's of it."""

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster, self.directory = cluster, directory

    def run(self, patience_s: float = 20, spec: RayJobSpec = SPEC) -> None:
        run_rayjob(spec, ApiServer(self.directory, patience_s), poll_s=0.01)

    def methods(self, path: str = RAYJOBS) -> list[str]:
        return [method for method, asked, _query, _body in self.cluster.asked if asked.startswith(path)]


Make = Callable[..., Place]


@pytest.fixture
def make(tmp_path: Path, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    with ExitStack() as stack:

        def made(*scripts: Sequence[State], schemas: Path = SCHEMAS) -> Place:
            cluster = Cluster(scripts or [SUCCEEDS], schemas)
            port = stack.enter_context(kubernetes_server(cluster, *certificate))
            monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
            monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(port))
            (tmp_path / "token").write_text("first")
            shutil.copyfile(certificate[0], tmp_path / "ca.crt")
            return Place(cluster, tmp_path)

        yield made


def test_states_and_driver_output_are_printed_as_they_arrive(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    setting = make()
    setting.run()
    assert capsys.readouterr().out.splitlines() == [
        "RayJob mlgo/ppo-1 is started",
        "RayJob mlgo/ppo-1: KubeRay has not started it yet",
        "RayJob mlgo/ppo-1: Initializing",
        "RayJob mlgo/ppo-1: Running, job PENDING",
        "iteration 0",
        "RayJob mlgo/ppo-1: Running, job RUNNING",
        "iteration 1",
        "RayJob mlgo/ppo-1: Complete, job SUCCEEDED",
    ]
    assert setting.methods().count("POST") == 1 and "DELETE" not in setting.methods()


def test_reason_of_a_pending_pod_is_printed_once_and_part_of_the_failure(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    """Other reasons: test_pending_pods.py."""
    setting = make(FAILS)
    running = {"metadata": {"name": "head"}, "status": {"phase": "Running"}}
    starting = {"metadata": {"name": "w0"}, "status": {"phase": "Pending"}}
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    pending = {"metadata": {"name": "w1"}, "status": {"phase": "Pending", "conditions": [unscheduled]}}
    setting.cluster.cluster_pods = [running, starting, pending]
    with pytest.raises(UserError) as failure:
        setting.run()
    told = "2 of 3 pods are pending, w1: Unschedulable: 0/1 nodes"
    assert told in failure.value.problem and capsys.readouterr().out.count(told) == 1


def test_successful_rayjob_is_not_started_again(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    setting = make()
    setting.run()
    capsys.readouterr()
    setting.run()
    assert setting.cluster.created == 1
    assert "exists already; following it" in capsys.readouterr().out


def test_only_one_of_two_concurrent_steps_starts_the_rayjob(make: Make) -> None:
    setting = make((*[("Running", "RUNNING")] * 40, ("Complete", "SUCCEEDED")))
    steps = [threading.Thread(target=setting.run) for _ in range(4)]
    for step in steps:
        step.start()
    for step in steps:
        step.join(30)
    assert setting.cluster.created == 1 and setting.methods().count("POST") == 4


def test_lost_response_does_not_start_a_second_rayjob(make: Make) -> None:
    setting = make()
    setting.cluster.silent, setting.cluster.silent_method = 1, "POST"
    setting.run()
    assert setting.cluster.created == 1 and setting.methods()[:2] == ["POST", "POST"]


def test_creation_while_the_quota_changes_is_repeated(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods of other trainings count towards the same quota."""
    setting = make()
    respond = setting.cluster.respond
    refusals = ['Operation cannot be fulfilled on resourcequotas "mlgo": the object has been modified'] * 2

    def respond_with_conflict(method: str, *asked: Any) -> tuple[int, Any]:
        return status(409, "Conflict", refusals.pop()) if method == "POST" and refusals else respond(method, *asked)

    monkeypatch.setattr(setting.cluster, "respond", respond_with_conflict)
    setting.run()
    assert setting.cluster.created == 1


def test_failed_status_requests_are_retried(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    setting = make()
    setting.cluster.busy = 2
    setting.cluster.silent, setting.cluster.silent_method = 1, "GET"
    setting.run()
    output = capsys.readouterr().out
    assert "the Kubernetes API does not answer; repeating the request for 20 s: 503 etcd leader changed" in output
    assert "job SUCCEEDED" in output


def test_long_server_outage_ends_only_the_step(make: Make) -> None:
    setting = make([("Running", "RUNNING")])
    threading.Timer(0.2, setattr, (setting.cluster, "busy", 1000)).start()
    with pytest.raises(UserError, match=r"has not answered for 1 s: 503.*\n.*run the same command again to follow"):
        setting.run(patience_s=1)
    setting.cluster.busy = 0
    assert list(setting.cluster.jobs) == ["ppo-1"] and "DELETE" not in setting.methods()


def test_failed_rayjob_is_reported_with_its_last_lines_and_restarted(make: Make) -> None:
    setting = make(FAILS, SUCCEEDS)
    with pytest.raises(UserError) as failure:
        setting.run()
    assert "failed (AppFailed: Job entrypoint command failed with exit code 1)" in failure.value.problem
    assert failure.value.problem.endswith("its last lines:\n    iteration 0")
    assert "kubectl describe rayjob --namespace mlgo ppo-1" in failure.value.remedy
    first = setting.cluster.jobs["ppo-1"]["job"]["metadata"]["uid"]
    setting.run()
    assert setting.cluster.created == 2 and setting.cluster.jobs["ppo-1"]["job"]["metadata"]["uid"] != first
    ((_method, _path, _query, options),) = [asked for asked in setting.cluster.asked if asked[0] == "DELETE"]
    # The Job that submits has the RayJob's name: it must have gone before there is a new one.
    assert options["propagationPolicy"] == "Foreground" and options["preconditions"]["uid"] == first


def test_rayjob_of_another_step_is_not_deleted(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has replaced the one that is looked at, between the two requests."""
    setting = make()
    setting.run()
    cluster, respond = setting.cluster, setting.cluster.respond
    metadata = cluster.jobs["ppo-1"]["job"]["metadata"]

    def replace_before_deletion(method: str, *asked: Any) -> tuple[int, Any]:
        metadata["resourceVersion"] += "0"  # KubeRay writes the status: it is the same RayJob
        if method == "DELETE" and replaced:
            metadata["uid"] = "another"
        return respond(method, *asked)

    monkeypatch.setattr(cluster, "respond", replace_before_deletion)
    for replaced in (True, False):
        end_rayjob(SPEC, ApiServer(setting.directory))
        assert ("deletionTimestamp" in metadata) is not replaced
    assert setting.methods().count("DELETE") == 2


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ([("Running", "RUNNING"), ("Complete", "STOPPED")], r"failed \(STOPPED\)"),
        ([("ValidationFailed", "")], "ppo-1 failed"),
    ],
)
def test_stopped_rayjob_and_one_that_kuberay_refuses_have_failed(
    make: Make, states: Sequence[State], said: str
) -> None:
    with pytest.raises(UserError, match=said):
        make(states).run()


def test_deletion_of_the_rayjob_ends_the_step(make: Make) -> None:
    setting = make([("Running", "RUNNING")])
    threading.Timer(0.3, setting.cluster.jobs.clear).start()
    with pytest.raises(UserError, match="was deleted"):
        setting.run()


def test_renewed_token_is_read_again(make: Make) -> None:
    setting = make((*[("Running", "RUNNING")] * 20, ("Complete", "SUCCEEDED")))

    def renew() -> None:
        with setting.cluster.lock:
            setting.cluster.token = "second"
            (setting.directory / "token").write_text("second")

    threading.Timer(0.1, renew).start()
    setting.run()
    assert setting.cluster.token == "second"


def test_token_that_cannot_be_sent_is_refused_without_being_printed(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither repeated as if the server did not answer, nor shown in http.client's message."""
    setting = make()
    (setting.directory / "token").write_text("s3cret\n")
    with pytest.raises(UserError, match="token is not one token") as error_of_refusal:
        setting.run()
    (setting.directory / "token").write_text("first")
    server = ApiServer(setting.directory, patience_s=20)
    server._configuration.api_key["authorization"] = "bearer s3cret\n"  # as kubernetes' client reads it again
    server._configuration.refresh_api_key_hook = None
    with pytest.raises(UserError, match="token is not one token") as later:
        run_rayjob(SPEC, server, poll_s=0.01)
    assert "s3cret" not in f"{error_of_refusal.value}{later.value}{capsys.readouterr()}" and setting.cluster.asked == []


def test_refusals_name_the_remedy(make: Make, tmp_path: Path) -> None:
    setting = make()
    setting.cluster.token = "another"
    with pytest.raises(UserError, match=r"401 Unauthorized\n.*service account"):
        setting.run()
    setting.cluster.token = "first"
    setting.cluster.denied = {"POST"}
    with pytest.raises(UserError, match=r"403 .*cannot post.*\n.*mlgo-steps"):
        setting.run()
    setting.cluster.denied = set()
    elsewhere = RayJobSpec(SPEC.name, "elsewhere", SPEC.image, SPEC.entrypoint)
    with pytest.raises(UserError, match=r"404 .*could not find.*\n.*is KubeRay installed"):
        setting.run(spec=elsewhere)


def test_refusal_names_the_rolebinding_of_the_account() -> None:
    """As Kubernetes 1.34 words it, for the account of a KFP with one user."""
    message = (
        'rayjobs.ray.io is forbidden: User "system:serviceaccount:kubeflow:pipeline-runner" cannot create resource '
        '"rayjobs" in API group "ray.io" in the namespace "mlgo"'
    )
    error = ApiException(status=403)
    error.body = json.dumps({"kind": "Status", "message": message})
    assert (
        "kubectl create rolebinding kubeflow-pipeline-runner --namespace mlgo --role mlgo-run-ray-jobs "
        "--serviceaccount kubeflow:pipeline-runner" in error_of_refusal(error, "RayJob mlgo/x", "").remedy
    )


def test_forbidden_log_does_not_end_the_step(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = make()
    monkeypatch.setattr("tests.servers.kubernetes_server.PODS", "/nowhere")
    setting.run()


def test_driver_lines_split_only_at_newlines_and_have_no_colors(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    setting = make()
    setting.cluster.log.append("2025-12-31T23:59:59.000000000Z reading\r50% done\u2028\x1b[1mall\x1b[22m done")
    setting.run()
    output = capsys.readouterr().out
    assert output.count("reading\\x0d50% done\\u2028all done\n") == 1, "escaped, and one line"
    assert output.count("done") == 2
    assert output.count("iteration 1\n") == 1


def test_lost_head_is_told_without_the_code_of_rays_client(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    setting = make()
    lost = "RuntimeError: WebSocket connection closed unexpectedly with close code 1006"
    ours = ["Traceback (most recent call last):", '  File "/x/lib/train.py", line 1', "ValueError: of the trainer"]
    rays = [ours[0], '  File "/opt/node/bin/ray", line 8, in <module>', "    sys.exit(main())", "        ^^^^", lost]
    setting.cluster.log += [f"2025-12-31T23:59:59.{n:09}Z {line}" for n, line in enumerate([*ours, *rays])]
    setting.run()
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(("RayJob", "iteration"))]
    assert lines == [*ours, lost]


@pytest.mark.parametrize("owner", ["first", "second"])
def test_a_new_submitter_of_the_same_job_does_not_repeat_the_lines_of_the_lost_one(
    make: Make, owner: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It begins with the log of the whole job. Another Job is another attempt, whose lines may be the same."""
    setting = make([("Running", "RUNNING")] * 9 + [("Complete", "SUCCEEDED")])
    cluster, respond = setting.cluster, setting.cluster.respond

    lost_at = [5, 8] if owner == "first" else [5]

    def respond_with_a_new_pod(*request: Any) -> tuple[int, Any]:
        if lost_at and len(cluster.log) == lost_at[0]:
            lost_at.pop(0)
            cluster.replace_submitter(owner)
        return respond(*request)

    monkeypatch.setattr(cluster, "respond", respond_with_a_new_pod)
    setting.run()
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("RayJob")]
    whole = [line.partition(" ")[2] for line in cluster.log]
    if owner == "first":
        assert lines == whole[1:] and len(lines) == len(set(lines)) == 9
    else:
        assert lines[-len(whole) :] == whole and lines[: -len(whole)] == whole[1 : len(lines) - len(whole) + 1] != []


def test_lines_of_rays_client_do_not_hide_those_of_the_job(make: Make) -> None:
    """A submitter that lost the connection ends with an error; the next one first waits for the head."""
    setting = make()
    setting.cluster.jobs["ppo-1"] = {}
    log = DriverLog(ApiServer(setting.directory), SPEC.namespace, SPEC.name)
    job = [f"iteration {n}" for n in range(9)]
    waits = ["Waiting for Ray Dashboard GCS to become healthy ..."] * 4

    def read(*lines: str) -> list[str]:
        setting.cluster.log = [f"2026-01-01T00:00:00.{n:09}Z {line}" for n, line in enumerate(lines)]
        return log.new_lines()

    error = "RuntimeError: WebSocket connection closed unexpectedly with close code 1006"
    assert read("address, 00:00", *job[:5], error) == ["address, 00:00", *job[:5], error]
    setting.cluster.replace_submitter("first")
    assert read(*waits) == waits
    assert read(*waits, "address, 00:01", *job) == job[5:]
    setting.cluster.replace_submitter("first")
    again = ["Job 'ppo-1-x' submitted successfully", *job]
    assert read(*again) == again, "the head was lost, too: the log of another attempt"


def test_error_of_a_node_does_not_end_the_log(
    make: Make, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It follows a status of 200, without a time."""
    setting = make([("Running", "RUNNING")] * 3 + [("Complete", "SUCCEEDED")])
    respond = setting.cluster.respond

    def respond_with_error(method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        code, answer = respond(method, path, query, body)
        return code, f"{answer}unable to retrieve container logs\n" if path.endswith("/log") else answer

    monkeypatch.setattr(setting.cluster, "respond", respond_with_error)
    setting.run()
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("RayJob")]
    assert lines == ["iteration 0", "iteration 1", "iteration 2"]


def test_log_on_a_lost_node_is_not_waited_for(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = make()
    respond = setting.cluster.respond

    def respond_without_log(method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        if path.endswith("/log"):
            setting.cluster.asked.append((method, path, query, body))
            return status(500, "InternalError", "dial tcp 10.0.0.7:10250: connect: no route to host")
        return respond(method, path, query, body)

    monkeypatch.setattr(setting.cluster, "respond", respond_without_log)
    setting.run(patience_s=1)
    assert any(path.endswith("/log") for _method, path, _query, _body in setting.cluster.asked)


@needs_schemas
@pytest.mark.parametrize("field", ["authOptions", "autoscalerOptions"])
def test_older_kuberay_refuses_unknown_fields(make: Make, tmp_path: Path, field: str) -> None:
    path = SCHEMAS / "ray.io_rayjobs.yaml"
    definition = yaml.load(path.read_text(), yaml.CSafeLoader)
    (version,) = [version for version in definition["spec"]["versions"] if version["name"] == "v1"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    del spec["rayClusterSpec"]["properties"][field]
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / path.name).write_text(yaml.dump(definition, Dumper=yaml.CSafeDumper))
    with pytest.raises(UserError, match=f"422 .*'{field}' was unexpected"):
        make(schemas=tmp_path / "old").run()


def test_server_with_another_certificate_is_refused(make: Make, tmp_path: Path) -> None:
    setting = make()
    (tmp_path / "other").mkdir()
    shutil.copyfile(make_certificate(tmp_path / "other")[0], setting.directory / "ca.crt")
    with pytest.raises(UserError, match="no certificate of this cluster's authority"):
        setting.run()
    assert setting.cluster.asked == []


def test_missing_cluster_is_a_user_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(UserError, match="not a pod with a Kubernetes service account"):
        ApiServer(tmp_path)


STEP = """
import sys
from pathlib import Path
from components.platform.command import run_step
from components.platform.rayjob.kubernetes import ApiServer
from components.platform.rayjob.spec import RayJobSpec
from components.platform.rayjob.submit import run_rayjob
spec = RayJobSpec("ppo-1", "mlgo", "r/i@sha256:" + "a" * 64, ("mlgo", "ppo", "--minutes", "60"))
run_step(lambda: run_rayjob(spec, ApiServer(Path(sys.argv[1])), poll_s=0.05))
"""


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_interrupted_step_leaves_the_rayjob_running_and_follows_it_again(make: Make, by: int) -> None:
    setting = make()
    setting.cluster.holds.clear()  # it stays in its first state
    command = [sys.executable, "-c", STEP, str(setting.directory)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as step:
        wait_until(lambda: "GET" in setting.methods(), process=step)
        os.kill(step.pid, by)
        output, error = step.communicate(timeout=30)
    if by == signal.SIGTERM:
        assert step.returncode == 143, error
        assert "RayJob mlgo/ppo-1 continues; the same command follows it" in output
        assert "kubectl delete rayjob --namespace mlgo ppo-1 ends it" in output
    uid = setting.cluster.jobs["ppo-1"]["job"]["metadata"]["uid"]
    assert "DELETE" not in setting.methods()
    setting.cluster.holds.set()
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert again.returncode == 0, again.stderr
    assert "exists already; following it" in again.stdout and "job SUCCEEDED" in again.stdout
    assert setting.cluster.created == 1 and setting.cluster.jobs["ppo-1"]["job"]["metadata"]["uid"] == uid
