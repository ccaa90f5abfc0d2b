"""Trainings and evaluations on a real MLflow server."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from components.evaluation.metrics import summarize
from components.evaluation.tracking import track_evaluation
from components.platform.launcher.mlflow import Tracker
from components.platform.storage.manifest import digest
from tests.components.evaluation.conftest import measurements
from tests.components.ppo.runs import LEARNING_BY_DEFAULT, train
from tests.servers.mlflow_server import mlflow_server
from tests.support.fork_server import ForkedStep
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as url:
        yield url


@pytest.fixture
def experiment(server: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The name of an experiment that this test's steps use."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"{server}/")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", name := request.node.name.split("[")[0])
    return name


def get(server: str, route: str, **query: Any) -> Any:
    return requests.get(f"{server}/api/2.0/mlflow/{route}", params=query, timeout=60).json()


def runs_of(server: str, experiment: str) -> list[Any]:
    found = get(server, "experiments/get-by-name", experiment_name=experiment)["experiment"]["experiment_id"]
    body = {"experiment_ids": [found]}
    return list(requests.post(f"{server}/api/2.0/mlflow/runs/search", json=body, timeout=60).json().get("runs", []))


def history(server: str, run: Any, metric: str) -> list[tuple[int, float]]:
    answer = get(server, "metrics/get-history", run_id=run["info"]["run_id"], metric_key=metric)
    return [(int(one["step"]), one["value"]) for one in answer["metrics"]]


def values(run: Any, kind: str) -> dict[str, Any]:
    return {one["key"]: one["value"] for one in run["data"].get(kind, [])}


def artifact(server: str, run: Any, name: str) -> bytes:
    place = run["info"]["artifact_uri"].split(":", 1)[1].strip("/")
    return requests.get(f"{server}/api/2.0/mlflow-artifacts/artifacts/{place}/{name}", timeout=60).content


@pytest.mark.tf
@LEARNING_BY_DEFAULT
def test_killed_training_and_its_evaluation_are_one_run(
    inputs: Any, server: str, experiment: str, tmp_path: Path
) -> None:
    command = [*inputs, "--iterations", 50, "--root-dir", tmp_path / "root", "--output", tmp_path / "policy"]
    process = ForkedStep("ppo", *command)
    wait_until(lambda: [*(tmp_path / "root").glob("checkpoints/*/manifest.json")], "a checkpoint", process, 120)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 143
    (run,) = runs_of(server, experiment)
    assert run["info"]["status"] == "KILLED" and values(run, "params")["problem"] == "inlining"

    report = train([*inputs, "--iterations", 6], tmp_path)
    (run,) = runs_of(server, experiment)
    assert run["info"]["status"] == "FINISHED" and values(run, "tags")["mlgo.policy"] == digest(tmp_path / "policy")
    rewards = report["mean_rewards"]
    assert history(server, run, "reward_mean") == [*enumerate(rewards, start=1)] and len(rewards) >= 6
    validations = history(server, run, "validation_reduction_percent")
    assert validations == [tuple(one) for one in report["validation_history"]]
    assert artifact(server, run, "policy/policy.json") == (tmp_path / "policy" / "policy.json").read_bytes()
    assert json.loads(artifact(server, run, "policy/report.json")) == report

    metrics = summarize(measurements(), 0.5)
    metrics.inputs.policy_digest = digest(tmp_path / "policy")
    for name in ("report.html", "metrics.json", "summary.md"):
        (tmp_path / name).write_text(name)
    for _ in range(2):
        track_evaluation(tmp_path, metrics)
    *evaluations, _ = runs_of(server, experiment)
    assert len(evaluations) == 2, "each has its own run"
    for evaluation in evaluations:
        assert values(evaluation, "metrics")["reduction_percent"] == metrics.reduction_percent
        assert values(evaluation, "tags")["mlflow.parentRunId"] == run["info"]["run_id"]
        assert values(evaluation, "tags")["mlgo.verdict"] == metrics.verdict
        assert artifact(server, evaluation, "report.html") == b"report.html"


def test_run_of_the_environment_stays_open(
    server: str, experiment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Tracker("one", {})
    first.log([("a/b c:d//", 1.0, 1000)], {f"p{index}": "x" * 7000 for index in range(150)})
    first.end("FINISHED", 60, {}, {})
    (one,) = runs_of(server, experiment)
    assert len(values(one, "params")) == 150 and values(one, "metrics") == {"a/b c_d/_": 1.0}
    monkeypatch.setenv("MLFLOW_RUN_ID", one["info"]["run_id"])
    named = Tracker("named", {})
    named.log([("c", 2.0, 3), ("nan", float("nan"), 0), ("inf", float("inf"), 0)], {"p1": "changed", "new": 1})
    named.end("KILLED", 60, {"seen": "yes"}, {})
    (again,) = runs_of(server, experiment)
    assert again["info"]["status"] == "FINISHED" and values(again, "tags")["seen"] == "yes"
    assert values(again, "metrics")["c"] == 2.0 and values(again, "params")["p1"] == "x" * 6000
    monkeypatch.setenv("MLFLOW_RUN_ID", "0" * 32)
    lost = Tracker("lost", {})
    lost.log([("c", 2.0, 3)])
    lost.end("FINISHED", 60, {}, {})
    assert len(runs_of(server, experiment)) == 1


def test_runs_at_once_in_a_new_experiment(server: str, experiment: str) -> None:
    trackers = [Tracker(f"run {index}", {"index": str(index)}) for index in range(4)]
    for tracker in trackers:
        tracker.log([("a", 1.0, 0)])
    for tracker in trackers:
        tracker.end("FINISHED", 60, {}, {})
    runs = runs_of(server, experiment)
    assert {values(run, "tags")["index"] for run in runs} == {"0", "1", "2", "3"}
    assert all(values(run, "metrics") == {"a": 1.0} for run in runs)


def test_deleted_run_is_replaced(server: str, experiment: str) -> None:
    known: list[str] = []
    for _ in range(3):
        tracker = Tracker("training", {}, known[-1] if known else "", known.append)
        tracker.log([("a", 1.0, len(known))])
        tracker.end("FINISHED", 60, {}, {})
        if len(known) == 2:
            body = {"run_id": known[-1]}
            requests.post(f"{server}/api/2.0/mlflow/runs/delete", json=body, timeout=60).raise_for_status()
    assert known[0] == known[1] != known[2]
