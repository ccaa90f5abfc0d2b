"""Tests of `mlgo retrain promote --run ID`: the artifacts of a run on a KFP server or on Vertex AI, both fakes.

The fake of KFP checks its answers against kfp_server_api. The layout in object storage is that of KFP's driver, read in
its source (backend/src/v2/driver); no server has been asked.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner

from components.platform.errors import UserError
from components.platform.storage import publish, read_manifest
from components.platform.storage.uri import ObjectUri, mirror, parse_location
from pipelines.cli.main import cli
from pipelines.retrain.server_run import REPORT, TASKS, server_run_artifacts
from pipelines.retrain.state import load_state
from pipelines.spec import COMPILED, load_spec, with_images
from pipelines.submit.artifacts.root import with_artifact_root
from pipelines.submit.kfp import KfpPipelines
from pipelines.submit.kfp_client import KfpAddress, KfpClient
from pipelines.vertex.client import VertexAddress
from pipelines.vertex.server import VertexPipelines
from tests.pipelines.retrain.registry.conftest import recording_server
from tests.pipelines.retrain.test_promote import artifacts
from tests.support.buckets import local_bucket
from tests.support.schemas import PublishedClients

ROOT = "gs://retraining/kfp"
STATE = "gs://retraining/retrain.json"
FIRST, SECOND = "11111111-2222-4333-8444-555555555555", "00000000-2222-4333-8444-555555555555"
JOB = "projects/p/locations/r/pipelineJobs/mlgo-training-20260101000000"
IMAGES = {"toolchain": "1", "training": "2"}
Start = Callable[..., str]


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    with local_bucket("retraining", monkeypatch, tmp_path / "cache"):
        yield


def publish_at(uri: str, source: Path | None = None) -> str:
    """Publish an artifact, a copy of `source` or one file; return its URI."""
    location = parse_location(uri)
    assert isinstance(location, ObjectUri)
    kind = read_manifest(source).kind if source else "evaluation"
    with publish(mirror(location), kind) as directory:  # type: ignore[arg-type]
        if source is None:
            (directory / "file").write_text(uri)
        else:
            shutil.copytree(source, directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns("manifest.json"))
    return uri


@pytest.fixture
def start(host: str) -> Start:
    """Return a function that starts a run on the fake KFP server, and returns its ID when the run has ended."""

    def run(root: str = ROOT, name: str = "n", polls: int = 8, **more: Any) -> str:
        images = {f"mlgo-{image}": f"r/{image}@sha256:{digit * 64}" for image, digit in IMAGES.items()}
        source = {"pipeline_spec": with_images(load_spec(COMPILED), images)} | more
        body = {"display_name": name, **source, "runtime_config": {"parameters": {}, "pipeline_root": root}}
        client = KfpClient(KfpAddress(host))
        identity = str(client.ask("POST", "runs", body)["run_id"])
        for _poll in range(polls):
            client.ask("GET", f"runs/{identity}")
        return identity

    return run


def artifacts_of(host: str, run: str, uris: dict[str, str] | None = None) -> dict[str, str]:
    return server_run_artifacts(KfpPipelines(KfpAddress(host)), run, uris)


def publish_run(run: str, *names: str, attempt: str = FIRST) -> dict[str, str]:
    """Publish the artifacts of a run where KFP's driver puts them; return their URIs by name."""
    attempts = f"{attempt}/" if attempt else ""
    return {name: publish_at(f"{ROOT}/mlgo-training/{run}/{TASKS[name]}/{attempts}{name}") for name in names}


def test_artifacts_are_found_where_the_driver_puts_them(storage: None, host: str, start: Start) -> None:
    run = start()
    uris = publish_run(run, *TASKS)
    publish_at(f"{ROOT}/mlgo-training/{run}/ppo/{FIRST}/ppo/policy")
    publish_at(f"{ROOT}/mlgo-training/another/ppo/{FIRST}/policy")
    assert artifacts_of(host, run) == uris | {"run": run}


def test_newest_finished_attempt_wins(storage: None, host: str, start: Start) -> None:
    run = start()
    uris = publish_run(run, "evaluation", "corpus", "training", attempt="")
    publish_run(run, "policy")
    newer = publish_run(run, "policy", attempt=SECOND)
    assert artifacts_of(host, run) == uris | newer | {"run": run}, "there is no report"


def test_artifact_of_a_reused_step_is_named_by_hand(storage: None, host: str, start: Start) -> None:
    run = start()
    uris = publish_run(run, "policy", "evaluation", "corpus")
    with pytest.raises(UserError, match="no finished artifact 'training' of its step toolchain-training") as error:
        artifacts_of(host, run)
    assert "pass --toolchain URI" in error.value.remedy
    overrides = {"training": "gs://retraining/other/training", "corpus": "gs://retraining/other/corpus", REPORT: ""}
    expected = {**uris, "corpus": overrides["corpus"], "training": overrides["training"], "run": run}
    assert artifacts_of(host, run, overrides) == expected


@pytest.mark.parametrize(
    ("root", "polls", "named"),
    [
        ("", 8, "does not say where the artifacts of the run"),
        ("minio://mlpipeline/kfp", 8, "Kubeflow Pipelines copies them from pods"),
        ("s3://bucket/kfp", 8, "Kubeflow Pipelines copies them from pods"),
        (ROOT, 1, "has not ended: it is running"),
    ],
)
def test_run_whose_artifacts_are_unknown_is_refused(
    storage: None, host: str, start: Start, root: str, polls: int, named: str
) -> None:
    with pytest.raises(UserError, match=named):
        artifacts_of(host, start(root, polls=polls))


@pytest.mark.parametrize("root", ["", "minio://mlpipeline/kfp"])
def test_artifacts_are_found_below_the_artifact_root(storage: None, host: str, start: Start, root: str) -> None:
    spec = with_artifact_root(load_spec(COMPILED), ROOT)
    images = {f"mlgo-{image}": f"r/{image}@sha256:{digit * 64}" for image, digit in IMAGES.items()}
    run = start(root, pipeline_spec=with_images(spec, images))
    uris = publish_run(run, *TASKS)
    assert artifacts_of(host, run) == uris | {"run": run}


def test_unknown_run_is_refused(host: str) -> None:
    with pytest.raises(UserError, match="has no run run-0"):
        artifacts_of(host, "run-0")
    with pytest.raises(UserError, match="is no ID of a run"):
        artifacts_of(host, "gs://bucket/run")


def mlgo(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["retrain", *arguments], standalone_mode=False)
    if done.exception:
        raise done.exception
    return done.output


def test_run_on_kfp_is_promoted_by_its_id(storage: None, host: str, start: Start, tmp_path: Path) -> None:
    run = start()
    made = artifacts(tmp_path / "run", [950, 940, 960, 955, 945, 950, 952, 1048], loadable=True)
    folder = f"{ROOT}/mlgo-training/{run}"
    for name, location in made.items():
        publish_at(f"{folder}/{TASKS[name]}/{FIRST}/{name}", Path(location))
    training = tmp_path / "run" / "training"
    publish_at(f"{folder}/{TASKS['training']}/{FIRST}/training", training)
    command = ("promote", "--state", STATE, "--run", run, "--host", host, "--by", "me")
    assert "promoted: against LLVM's heuristic, as nothing is deployed" in mlgo(*command)
    deployed = load_state(STATE).deployed
    assert deployed is not None and deployed.policy == f"{folder}/ppo/{FIRST}/policy" and deployed.run == run
    assert f"run {run}" in mlgo("show", "--state", STATE)


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (("--host", "http://x"), "--host and --vertex need the ID of a run"),
        (("--run", "1", "--host", "http://x", "--vertex", "p/r"), "exactly one of --host and --vertex"),
        (("--run", "gs://b/r", "--policy", "gs://b/p"), "either --run or all of"),
        (("--run", "gs://b/r", "--run-id", "7"), "--run-id cannot be used with --run gs://b/r"),
        (("--run", "gs://b/r", "--run-resource-name", JOB), "--run-resource-name cannot be used with --run"),
        (("--run", "gs://b/r", "--release-report", "gs://b/q"), "--release-report cannot be used with --run"),
        (("--run", "r", "--run-id", "7", "--release-report", "q"), "--run-id and --release-report cannot be used with"),
        (("--run", "1", "--host", "http://x", "--run-id", "7"), "--run-id cannot be used with --run 1"),
    ],
)
def test_contradicting_options_are_refused(more: tuple[str, ...], named: str) -> None:
    with pytest.raises(UserError, match=named):
        mlgo("promote", "--state", STATE, *more)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("--run-id", "7", "--run-resource-name", "mlgo-training-x7k"), "7"),
        (("--run-id", "7", "--run-resource-name", JOB), JOB),
        ((), "{policy}"),
    ],
)
def test_step_records_the_run(tmp_path: Path, names: tuple[str, ...], expected: str) -> None:
    """KFP's resource name is that of an Argo Workflow, by which nobody finds the run."""
    made, state_path = artifacts(tmp_path / "run", [950] * 8, loadable=True), str(tmp_path / "state.json")
    options = (*(f"--{name}={where}" for name, where in made.items()), f"--toolchain={tmp_path / 'run' / 'training'}")
    mlgo("promote", "--state", state_path, *options, *names)
    (decision,) = load_state(state_path).decisions
    assert decision.run == expected.format(**made)


class Vertex:
    """A PipelineJob that has ended. lacking: tasks without outputs."""

    def __init__(self, published: PublishedClients, state: str = "SUCCEEDED", **tasks: str) -> None:
        self.published, self.state, self.tasks = published, state, tasks

    def respond(self, request: Any) -> tuple[int, dict[str, Any]]:
        self.published.check("vertex", request.method, request.path, request.body)
        if request.path != f"/v1/{JOB}":
            return 404, {"error": {"message": "no such job"}}
        details = [
            {
                "taskName": task,
                "state": self.tasks.get(name, "SUCCEEDED"),
                "outputs": {
                    name: {"artifacts": [{"name": "a", "uri": f"gs://b/1/{task}_-7/{name}", "schemaVersion": "0.0.1"}]}
                },
            }
            for name, task in TASKS.items()
            if self.tasks.get(name) != "absent"
        ]
        job = {"name": JOB, "state": f"PIPELINE_STATE_{self.state}", "jobDetail": {"taskDetails": details}}
        self.published.check("vertex-message", "GET", "PipelineJob", job)
        return 200, job


def on_vertex(vertex: Vertex, run: str = JOB) -> dict[str, str]:
    with recording_server(vertex.respond) as server:
        return server_run_artifacts(VertexPipelines(VertexAddress("p", "r", requests.Session(), server.url)), run)


def test_artifacts_of_a_pipeline_job(published: PublishedClients) -> None:
    uris = on_vertex(Vertex(published), JOB.rpartition("/")[2])
    assert uris == {name: f"gs://b/1/{task}_-7/{name}" for name, task in TASKS.items()} | {"run": JOB}
    reused = on_vertex(Vertex(published, corpus="SKIPPED", release_report="absent"))
    assert reused["corpus"] == "gs://b/1/corpus_-7/corpus" and REPORT not in reused


@pytest.mark.parametrize(
    ("state", "tasks", "named"),
    [
        ("RUNNING", {}, "has not ended: it is running"),
        ("FAILED", {"policy": "absent"}, "no finished artifact 'policy' of its step ppo"),
        (
            "FAILED",
            {"release_report": "FAILED"},
            "no finished step release-report, .*: it failed",
        ),
        (
            "FAILED",
            {"release_report": "absent"},
            "no finished step release-report, .*: it failed",
        ),
        ("CANCELLED", {"release_report": "CANCELLED"}, "how the release clang does: it was canceled"),
    ],
)
def test_job_without_its_artifacts_is_refused(
    published: PublishedClients, state: str, tasks: dict[str, str], named: str
) -> None:
    with pytest.raises(UserError, match=named):
        on_vertex(Vertex(published, state, **tasks))


def test_unknown_job_is_refused(published: PublishedClients) -> None:
    with pytest.raises(UserError, match="no such job"):
        on_vertex(Vertex(published), "mlgo-training-1")
