"""Following, retrying and canceling runs on the fake KFP server, and the tasks among the nodes of a workflow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
import pytest
import requests

from components.platform.errors import UserError
from components.platform.launcher.images import CLUSTER, IMAGES
from pipelines.finish.__main__ import _message
from pipelines.spec import COMPILED, load_spec, with_images
from pipelines.submit import kfp_run
from pipelines.submit.kfp import KfpPipelines
from pipelines.submit.kfp_client import KfpAddress, KfpClient
from pipelines.submit.kfp_run import KfpRun, launcher_was_killed, run_state, without_launcher
from pipelines.submit.kfp_tasks import tasks_of
from pipelines.submit.polling import Task
from pipelines.submit.server import wait
from tests.servers.argo_nodes import LOG, WORKFLOW, Workflow

SPEC = load_spec(COMPILED)
POLL_S = 0.02
Start = Callable[..., str]


@pytest.fixture
def start(host: str, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Return a function that starts a run with parameters, and returns its ID."""
    monkeypatch.setenv("MLGO_POLL_PATIENCE_S", "3")

    def started(name: str = "n", spec: dict[str, Any] | None = None, **parameters: str) -> str:
        images = {f"mlgo-{key}": f"r/{key}@sha256:{'1' * 64}" for key in ("toolchain", "training")}
        spec = spec or with_images(SPEC, images)
        body: dict[str, Any] = {
            "display_name": name,
            "pipeline_spec": spec,
            "runtime_config": {"parameters": parameters},
            "service_account": "mlgo-steps",
        }
        response = requests.post(f"{host}/apis/v2beta1/runs", json=body, timeout=30)
        assert response.ok, response.text
        return str(response.json()["run_id"])

    return started


def test_watch_shows_tasks_of_the_pipeline(start: Start, host: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Not the nodes of the workflow, of which there are seven times as many."""
    run = start(preset="tiny")
    with pytest.raises(UserError) as failed:
        wait(KfpPipelines(KfpAddress(host)), run, POLL_S)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "running" not in line] == [
        "[corpus] succeeded after 60 s",
        "[toolchain-training] reused the result of another run",
        "[trace] succeeded after 60 s",
        "[vocab] succeeded after 60 s",
        "[warmstart] succeeded after 60 s",
        "[ppo] failed after 2 min, attempt 2",
        "[finish] succeeded after 60 s",
        "not run: evaluation, select-policy, toolchain-release, tune, release-report, promote, record-refusal",
    ]
    assert f"the run {run} did not succeed: step ppo failed\n  the last lines of ppo:\n    ppo: line 80\n" in str(
        failed.value
    )
    assert "    ppo: line 99" in failed.value.problem and "line 79" not in failed.value.problem
    assert f"{host}/#/runs/details/{run}" in failed.value.remedy
    assert f"mlgo pipeline retry {run}" in failed.value.remedy


def test_errors_of_the_launcher_itself_are_shown() -> None:
    program, own = ("failed to execute component: exit status 1", "failed to download input artifact")
    log = LOG.format("line\n")
    assert without_launcher(log) == "line\n"
    assert without_launcher(log.replace(program, own)).endswith(f"main.go:59] {own}\n")
    glued = log.replace(program, own).replace("}\nW1126", "}W1126")
    assert without_launcher(glued) == f"line\nF1126 23:37:55.893140      15 main.go:59] {own}\n"
    assert "exit status 1" in without_launcher(LOG.format("")), "a program that says nothing"


def test_retried_run_finishes(start: Start, host: str, capsys: pytest.CaptureFixture[str]) -> None:
    server, run = KfpPipelines(KfpAddress(host)), start(preset="tiny")
    with pytest.raises(UserError, match=f"the run {run} has not failed: it is running"):
        server.retry(run)
    with pytest.raises(UserError, match="step ppo failed"):
        wait(server, run, POLL_S)
    server.retry(run)
    capsys.readouterr()
    wait(server, run, POLL_S)
    assert "[ppo] succeeded after 60 s\n" in capsys.readouterr().out
    with pytest.raises(UserError, match=f"the run {run} has not failed: it succeeded"):
        server.retry(run)


def test_canceled_run_can_be_retried(start: Start, host: str) -> None:
    server, run = KfpPipelines(KfpAddress(host)), start()
    server.cancel(run)
    with pytest.raises(click.exceptions.Exit) as ended:
        wait(server, run, POLL_S)
    assert ended.value.exit_code == 3, "although KFP says FAILED"
    with pytest.raises(UserError, match="it was canceled"):
        server.cancel(run)
    server.retry(run)
    wait(server, run, POLL_S)


def test_canceled_run_tells_whether_a_ray_cluster_may_remain(start: Start, host: str) -> None:
    assert not KfpPipelines(KfpAddress(host)).cancel(start())
    images = {name: f"r/{name}@sha256:{'1' * 64}" for name in IMAGES.values()}
    assert KfpPipelines(KfpAddress(host)).cancel(start(spec=with_images(SPEC, images), workers="rayjob:2"))
    smoke = load_spec(COMPILED.with_name("smoke.yaml"))
    assert KfpPipelines(KfpAddress(host)).cancel(start(spec=with_images(smoke, images)))
    del images[IMAGES[CLUSTER]]
    assert not KfpPipelines(KfpAddress(host)).cancel(start(spec=with_images(smoke, images)))


def test_log_and_reason_come_through_the_user_interface(
    start: Start, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    interface = KfpPipelines(KfpAddress(f"{host}/interface"))
    with pytest.raises(UserError, match="\n    ppo: line 99"):
        wait(interface, start(preset="tiny"), POLL_S)
    wait(interface, start("unscheduled"), POLL_S)
    reason = "[ppo] its pod has not started: Unschedulable: 0/1 nodes are available: 1 Insufficient cpu.\n"
    assert capsys.readouterr().out.count(reason) == 1


@pytest.mark.parametrize(
    ("history", "state"),
    [
        (("PENDING", "RUNNING", "FAILED"), "FAILED"),
        (("RUNNING", "CANCELING", "FAILED"), "CANCELED"),
        (("RUNNING", "CANCELING", "FAILED", "RUNNING", "FAILED"), "FAILED"),
        ((), "FAILED"),
    ],
)
def test_history_tells_whether_a_failed_run_was_canceled(history: tuple[str, ...], state: str) -> None:
    assert run_state({"state": "FAILED", "state_history": [{"state": entry} for entry in history]}) == state


def read_states(states: dict[str, Any], ended: str = "", defaults: bool = True) -> tuple[dict[str, Task], Workflow]:
    workflow = Workflow(SPEC, states, ended, defaults)
    run = {"run_details": {"task_details": workflow.details("r")}}
    return {task.name: task for task in tasks_of(run, SPEC)}, workflow


@pytest.mark.parametrize("defaults", [False, True])
def test_attempts_and_pods_are_found_for_each_task(defaults: bool) -> None:
    """With and without the retry strategy that KFP 2.17 gives to every node."""
    states = {"corpus": ["FAILED", "SUCCEEDED"], "toolchain-training": "CACHED", "trace": ["FAILED", "RUNNING"]}
    tasks, workflow = read_states(states, defaults=defaults)
    assert {name: task.attempts for name, task in tasks.items() if task.state} == {
        "corpus": 2,
        "toolchain-training": 0,
        "trace": 2,
    }
    assert tasks["toolchain-training"].reused and not tasks["corpus"].reused
    assert tasks["corpus"].seconds == 120 and tasks["trace"].seconds is None
    for name in ("corpus", "trace"):
        assert workflow.pods[name] == tasks[name].pods[0]
    assert not tasks["ppo"].state


def test_failed_driver_fails_its_task() -> None:
    tasks, workflow = read_states({"corpus": "DRIVER_FAILED", "finish": "SUCCEEDED"}, "FAILED")
    assert tasks["corpus"] == Task("corpus", "FAILED", pods=(workflow.pods["corpus"],))
    assert not tasks["trace"].state and tasks["finish"].attempts == 1


def test_failed_driver_of_a_condition_is_a_failed_task() -> None:
    """Seen on a real server: all container tasks had succeeded, and those in the condition never began."""
    names = ("corpus", "toolchain-training", "trace", "vocab", "warmstart", "ppo", "evaluation", "finish")
    tasks, workflow = read_states(
        dict.fromkeys(names, "SUCCEEDED") | {"release-and-promote": "DRIVER_FAILED"}, "FAILED"
    )
    failed = [task for task in tasks.values() if task.state == "FAILED"]
    assert failed == [Task("release-and-promote", "FAILED", pods=(workflow.pods["release-and-promote"],))]
    assert not tasks["toolchain-release"].state
    assert "release-and-promote" not in read_states(dict.fromkeys(names, "SUCCEEDED"), "SUCCEEDED")[0]


def test_tasks_of_other_servers_are_found_by_name() -> None:
    """A server that lists tasks, without children: attempts are unknown."""
    listed = [{"display_name": "corpus", "state": "SUCCEEDED"}, {"display_name": "executor", "state": "FAILED"}]
    tasks = {task.name: task for task in tasks_of({"run_details": {"task_details": listed}}, SPEC)}
    assert tasks["corpus"] == Task("corpus", "SUCCEEDED") and not tasks["ppo"].state
    assert tasks_of({"run_details": {"task_details": listed}}, {}) == []
    assert WORKFLOW not in tasks


def test_lost_driver_is_told_with_a_new_run_as_the_way_out(
    start: Start, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pod was deleted; Argo made it again, and every later driver fails with what ML Metadata has then."""
    line = f"F1126 23:37:55.893140 15 main.go:59] KFP driver: {'x' * 900}: two tasks have the same task name"
    monkeypatch.setattr(KfpRun, "_first_log", lambda *_: line)
    with pytest.raises(UserError, match="the pod of a driver was lost") as failed:
        wait(KfpPipelines(KfpAddress(host)), start(preset="tiny"), POLL_S)
    assert "submit the pipeline again" in failed.value.remedy and "retry" not in failed.value.remedy
    run = KfpRun(KfpClient(KfpAddress(host)), start())
    assert "submit the pipeline again" in _message(run, Task("ppo")), "what the webhook gets"


def test_removed_pod_of_a_step_is_told_with_a_retry_as_the_way_out(
    start: Start, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KFP's launcher ends with SIGTERM, whatever its step does; Argo may see the pod before it is gone.

    The log that Argo archived has no line about it.
    """
    killed = "I1129 07:44:58.299682      20 registry.go:68] No task-level plugins enabled\nINFO training: 2, 0.5/min\n"
    assert not launcher_was_killed(LOG.format("line\n"))
    monkeypatch.setattr(KfpRun, "_read_text", lambda *_: killed)
    with pytest.raises(UserError, match=r"the pod of step \w+ was removed while it ran \(exit status 143\)") as failed:
        wait(KfpPipelines(KfpAddress(host)), start(preset="tiny"), POLL_S)
    assert "retry" in failed.value.remedy and "cause" not in failed.value.remedy


def test_inputs_that_a_driver_dumps_are_not_shown() -> None:
    dump = 'I1129 08:24:52.066364      16 main.go:495] input kubernetesConfig:{\n  "securityContext": {\n  }\n}\n'
    reason = "F1129 08:24:52.137882      16 main.go:127] KFP driver: no artifact\n"
    assert without_launcher(dump + reason) == reason


def test_run_with_a_reused_evaluation_says_where_the_verdict_is(start: Start, host: str) -> None:
    run = KfpRun(KfpClient(KfpAddress(host)), start())
    names = ("corpus", "toolchain-training", "trace", "vocab", "warmstart", "ppo", "evaluation")
    details = Workflow(SPEC, dict.fromkeys(names, "CACHED"), "SUCCEEDED").details(run.run_id)
    run.document |= {"run_details": {"task_details": details}}
    assert run.results()[0] == "the evaluation was reused: its run has the verdict"


def test_server_without_controller_is_told(start: Start, host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = KfpRun(KfpClient(KfpAddress(host)), start())
    run.document |= {"state": "PENDING", "run_details": {}}
    assert not any("controller" in line for line in run.remarks())
    monkeypatch.setattr(kfp_run, "_NO_CONTROLLER_S", 0.0)
    assert any("Argo's controller does not answer" in line for line in run.remarks())
