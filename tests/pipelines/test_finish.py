"""The exit handler: what the webhook receives, from the runners of this machine and from KFP's API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from components.evaluation.report.formatting import projects_line
from components.platform.errors import UserError
from components.platform.launcher import commit_status
from components.platform.launcher.notify import (
    NOTIFY_SECRET_VARIABLE,
    NOTIFY_VARIABLE,
    OUTCOME_VARIABLE,
    PAGES_VARIABLE,
)
from pipelines.finish.__main__ import main
from pipelines.spec import COMPILED_PIPELINES, load_spec
from pipelines.spec_changes import dags
from pipelines.submit.kfp_client import HOST_VARIABLE, POD_TOKEN_VARIABLE
from pipelines.submit.kfp_package import notify_settings
from tests.servers.argo_nodes import Workflow
from tests.servers.git_forge import TOKEN, Forge, git_forge
from tests.servers.http_server import JsonHandler, serving

SPEC = load_spec(COMPILED_PIPELINES["training"])


@contextmanager
def server(run: Mapping[str, Any], log: str = "", token: str = "") -> Iterator[tuple[str, list[Any]]]:
    """Serve KFP's API for one run and its logs, and a webhook; yield the URL and what the webhook received."""
    received: list[Any] = []

    class Handler(JsonHandler):
        def do_GET(self) -> None:
            if token and self.headers.get("Authorization") != f"Bearer {token}":
                self.send_json({"message": "Unauthenticated"}, 401)
            elif self.path == "/apis/v2beta1/runs/run-1":
                self.send_json(run)
            elif self.path.startswith("/apis/v1alpha1/runs/run-1/nodes/"):
                self.send(log.encode(), "text/plain", 200)
            else:
                self.send_json({"message": "no route"}, 404)

        def do_POST(self) -> None:
            received.append(self.read_json())
            self.send_json({})

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        yield url, received


def at_its_end(states: Mapping[str, Any], state: str = "RUNNING") -> dict[str, Any]:
    """Return a run whose exit handler runs, as the API answers it."""
    workflow = Workflow(SPEC, {"finish": "RUNNING", **states})
    details = {"task_details": workflow.details("run-1")}
    return {"run_id": "run-1", "state": state, "pipeline_spec": SPEC, "run_details": details}


@pytest.fixture(autouse=True)
def variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status = (commit_status.COMMIT_VARIABLE, commit_status.TOKEN_VARIABLE)
    for name in (NOTIFY_VARIABLE, OUTCOME_VARIABLE, PAGES_VARIABLE, HOST_VARIABLE, *status):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(POD_TOKEN_VARIABLE, str(tmp_path / "token"))


def finish(*arguments: str) -> str:
    done = CliRunner().invoke(main, arguments, catch_exceptions=False, standalone_mode=False)
    return done.output


@pytest.mark.parametrize(
    ("states", "run_state", "told"),
    [
        ({"corpus": "SUCCEEDED", "evaluation": "SUCCEEDED"}, "RUNNING", ("SUCCEEDED", "", "")),
        ({"corpus": "SUCCEEDED", "trace": ["FAILED", "SUCCEEDED"]}, "RUNNING", ("SUCCEEDED", "", "")),
        (
            {"corpus": "SUCCEEDED", "toolchain-training": "SUCCEEDED", "trace": ["FAILED", "FAILED"]},
            "RUNNING",
            ("FAILED", "trace", "error: there is no clang\n  remedy: build one"),
        ),
        ({"corpus": "FAILED"}, "CANCELING", ("CANCELED", "", "")),
    ],
)
def test_webhook_receives_what_the_api_tells(
    states: dict[str, Any], run_state: str, told: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    log = "compiling\nerror: earlier\nerror: there is no clang\n  remedy: build one\n"
    with server(at_its_end(states, run_state), log) as (url, received):
        monkeypatch.setenv(HOST_VARIABLE, url)
        monkeypatch.setenv(NOTIFY_VARIABLE, f"{url}/hook")
        monkeypatch.setenv(PAGES_VARIABLE, "https://kfp.example.com/#/runs/details/")
        output = finish("--run-id", "run-1")
    state, failed, error = told
    assert received == [
        {
            "run": "run-1",
            "pipeline": "mlgo-training",
            "state": state,
            "failed": failed,
            "error": error,
            "page": "https://kfp.example.com/#/runs/details/run-1",
        }
    ]
    assert f"the pipeline ended: {state}" in output


def test_token_of_the_pod_is_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("good\n")
    with server(at_its_end({"corpus": "SUCCEEDED"}), token="good") as (url, received):
        monkeypatch.setenv(HOST_VARIABLE, url)
        monkeypatch.setenv(NOTIFY_VARIABLE, f"{url}/hook")
        finish("--run-id", "run-1")
    assert received[0]["state"] == "SUCCEEDED"


def test_webhook_is_told_where_the_api_cannot_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with server({}, token="good") as (url, received):
        monkeypatch.setenv(HOST_VARIABLE, url)
        monkeypatch.setenv(NOTIFY_VARIABLE, f"{url}/hook")
        finish("--run-id", "run-1")
    assert received[0]["state"] == "UNKNOWN" and "401" in received[0]["error"]
    with server({}) as (url, received):
        monkeypatch.setenv(HOST_VARIABLE, "http://127.0.0.1:1")
        monkeypatch.setenv(NOTIFY_VARIABLE, f"{url}/hook")
        finish("--run-id", "run-1")
    assert received[0]["run"] == "run-1" and "does not answer" in received[0]["error"]


def test_states_that_kfp_stores_late_are_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.finish.__main__._POLL_S", 0.02)
    asked = []
    succeeded = dict.fromkeys(("corpus", "toolchain-training", "trace", "vocab", "warmstart", "ppo"), "SUCCEEDED")
    late: list[dict[str, str]] = [{"evaluation": "RUNNING"}, {"finish": ""}, {"release-and-promote": "DRIVER_FAILED"}]

    class Late(dict[str, Any]):
        def items(self) -> Any:
            asked.append(1)
            return at_its_end(succeeded | {"evaluation": "SUCCEEDED"} | late[len(asked) - 1]).items()

    with server(Late(run_id="run-1")) as (url, received):
        monkeypatch.setenv(HOST_VARIABLE, url)
        monkeypatch.setenv(NOTIFY_VARIABLE, f"{url}/hook")
        finish("--run-id", "run-1")
    assert received[0]["failed"] == "release-and-promote" and len(asked) == 3


def test_outcome_of_a_run_on_this_machine_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with server({}) as (url, received):
        monkeypatch.setenv(NOTIFY_VARIABLE, f"{url}/s3cret")
        monkeypatch.setenv(OUTCOME_VARIABLE, json.dumps({"state": "FAILED", "pipeline": "demo", "error": "no clang"}))
        output = finish("--run-id", "")
    assert output == "the pipeline ended: FAILED: no clang\n"
    assert {key: received[0][key] for key in ("pipeline", "state", "error", "page")} == {
        "pipeline": "demo",
        "state": "FAILED",
        "error": "no clang",
        "page": "",
    }
    monkeypatch.setenv(OUTCOME_VARIABLE, "x")
    with pytest.raises(UserError, match=OUTCOME_VARIABLE):
        finish()


def test_refusal_of_the_webhook_fails_the_step_without_its_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OUTCOME_VARIABLE, json.dumps({"state": "SUCCEEDED"}))
    monkeypatch.setenv(NOTIFY_VARIABLE, "http://127.0.0.1:1/s3cret")
    with pytest.raises((UserError, click.ClickException)) as refused:
        finish()
    assert "did not accept the notification" in str(refused.value) and "s3cret" not in str(refused.value)


def test_nothing_is_asked_without_a_webhook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOST_VARIABLE, "http://127.0.0.1:1")
    assert finish("--run-id", "run-1") == "the pipeline has ended; no webhook is configured\n"


def test_missing_secret_fails_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes leaves the variable out, because a pod would wait for ever for a Secret that is not optional."""
    monkeypatch.setenv(NOTIFY_SECRET_VARIABLE, "absent")
    with pytest.raises((UserError, click.ClickException), match="there is no Secret absent with the key url"):
        finish("--run-id", "run-1")


@pytest.fixture
def forge(monkeypatch: pytest.MonkeyPatch) -> Iterator[Forge]:
    """A server of git whose commit the run belongs to."""
    with git_forge() as started:
        monkeypatch.setenv(commit_status.COMMIT_VARIABLE, started.github_commit)
        monkeypatch.setenv(commit_status.CONTEXT_VARIABLE, "sizes")
        monkeypatch.setenv(commit_status.TOKEN_VARIABLE, TOKEN)
        monkeypatch.setenv(PAGES_VARIABLE, "https://kfp/#/runs/details/")
        yield started


@pytest.mark.parametrize(
    ("states", "run_state", "log", "state", "description"),
    [
        (
            {"evaluation": "SUCCEEDED"},
            "RUNNING",
            "verdict: better (measured: 1.20% smaller on 9 held-out modules; required: at least 0% smaller)\n"
            f"{projects_line({'lz4': -0.1, 'abseil': 2.7, 'zlib': 0.0})}\n",
            "success",
            "better: 1.20% smaller on 9 held-out modules; grew lz4 0.10%; gained abseil 2.70%",
        ),
        (
            {"evaluation": "SUCCEEDED"},
            "RUNNING",
            "verdict on the pretrained policy: not better, because programs execute more instructions (measured: same "
            "on 9 held-out modules; required: at least 0% smaller)\n",
            "success",
            "on the pretrained policy: not better, because programs execute more instructions: same on 9 held-out "
            "modules",
        ),
        ({"corpus": "SUCCEEDED"}, "RUNNING", "", "success", "the run succeeded"),
        ({"corpus": "FAILED"}, "RUNNING", "error: no code\n  remedy: write some", "failure", "corpus failed: no code"),
        ({"corpus": "FAILED"}, "CANCELING", "", "error", "the run was canceled"),
    ],
)
def test_commit_gets_the_verdict_and_a_link(
    states: dict[str, str], run_state: str, log: str, state: str, description: str, forge: Forge,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    with server(at_its_end(states, run_state), log) as (url, webhooks):
        monkeypatch.setenv(HOST_VARIABLE, url)
        output = finish("--run-id", "run-1")
    ((_path, body),) = forge.statuses
    assert (body["state"], body["context"]) == (state, "sizes")
    assert body["description"].removesuffix(" remedy: write some") == description
    assert body["target_url"] == "https://kfp/#/runs/details/run-1"
    assert f"has the status {state}: " in output and not webhooks


def test_webhook_that_fails_does_not_keep_the_commit_from_its_status(
    forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NOTIFY_VARIABLE, "http://127.0.0.1:1/s3cret")
    monkeypatch.setenv(HOST_VARIABLE, "http://127.0.0.1:1")
    with pytest.raises((UserError, click.ClickException), match="did not accept the notification"):
        finish("--run-id", "run-1")
    ((_path, body),) = forge.statuses
    assert body["state"] == "error" and body["description"].startswith("KFP's API does not tell: KFP at ")
    monkeypatch.setenv(commit_status.TOKEN_VARIABLE, "")
    with pytest.raises((UserError, click.ClickException)) as refused:
        finish("--run-id", "run-1")
    assert "notification" in str(refused.value) and "gets no status" in str(refused.value)


def test_run_on_this_machine_sets_no_status(forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job of CI that runs it has a status."""
    monkeypatch.setenv(OUTCOME_VARIABLE, json.dumps({"state": "SUCCEEDED"}))
    finish("--run-id", "")
    assert not forge.statuses


@pytest.mark.parametrize("name", COMPILED_PIPELINES)
def test_exit_handler_needs_no_final_status_of_the_server(name: str) -> None:
    """Servers before 2.14 refuse it, and the driver of this step fails after a lost node if it has to compute it."""
    spec = load_spec(COMPILED_PIPELINES[name])
    parameters = [
        task["inputs"]["parameters"] for tasks in dags(spec) for label, task in tasks.items() if label == "finish"
    ]
    assert parameters == [{"run_id": {"runtimeValue": {"constant": "{{$.pipeline_job_uuid}}"}}}]
    told, _pods = notify_settings(spec, "mlgo-notify", "https://kfp/#/runs/details/")
    container = told["deploymentSpec"]["executors"]["exec-finish"]
    assert {"name": PAGES_VARIABLE, "value": "https://kfp/#/runs/details/"} in container["container"]["env"]
