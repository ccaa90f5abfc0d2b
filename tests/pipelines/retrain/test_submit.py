"""Tests of `mlgo retrain submit`: what the run on a server is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from components.platform.errors import UserError
from components.platform.storage import digest, publish
from components.platform.storage.uri import ObjectUri, mirror, parse_location
from pipelines.cli.main import cli
from pipelines.retrain.state import load_state, save_state
from pipelines.submit.options import SubmitOptions
from tests.pipelines.retrain.test_promote import OLD
from tests.support.buckets import local_bucket

ROOT = "gs://retraining/kfp"
Submitted = list[tuple[SubmitOptions, bool]]
"""Options of each run, and whether it is followed."""
STATE = "gs://retraining/retrain.json"


@pytest.fixture
def storage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    with local_bucket("retraining", monkeypatch, tmp_path / "cache"):
        yield


@pytest.fixture
def submitted(monkeypatch: pytest.MonkeyPatch) -> Submitted:
    """Return the runs that are submitted."""
    runs: Submitted = []
    monkeypatch.setattr("pipelines.cli.submit.submit_run", lambda _server, options, wait: runs.append((options, wait)))
    return runs


def submit(*arguments: str, command: str = "submit") -> None:
    words = ["retrain", command, "--host", "http://localhost:1", *arguments]
    CliRunner().invoke(cli, words, catch_exceptions=False, standalone_mode=False)


def test_run_gets_the_state_and_who_submits_it(storage: None, submitted: Submitted) -> None:
    location = parse_location("gs://retraining/old")
    assert isinstance(location, ObjectUri)
    with publish(mirror(location), "trace") as directory:
        (directory / "weights.npz").write_text("weights")
    deployed = replace(OLD, policy=str(location), policy_digest=digest(mirror(location)), regressed=("m1",))
    save_state(STATE, load_state(STATE).promoted(deployed))
    submit(
        "--state",
        STATE,
        "--pipeline-root",
        ROOT,
        "--param",
        "corpus=gs://retraining/corpus",
        "--wait",
        "--by",
        "somebody",
    )
    start = ("--param", "recipe=demo", "--param", "start_from=heuristic")
    submit("--state", STATE, "--pipeline-root", ROOT, *start, command="run")
    assert submitted[0][0].parameters == {
        "corpus": "gs://retraining/corpus",
        "retrain_state": STATE,
        "promoted_by": "somebody",
    }
    assert submitted[0][1] and submitted[1][0].parameters["start_from"] == "heuristic"


def test_first_run_is_submitted_without_a_state(storage: None, submitted: Submitted) -> None:
    submit("--state", STATE, "--pipeline-root", ROOT, "--param", "recipe=demo", "--by", "")
    parameters = dict(submitted[0][0].parameters)
    assert "@" in parameters.pop("promoted_by") and parameters == {"recipe": "demo", "retrain_state": STATE}


@pytest.mark.parametrize(
    ("state", "root", "named"),
    [
        ("retrain.json", ROOT, "is on this machine, but the steps run on others"),
        (STATE, "", "a policy on this machine is not"),
        (STATE, "minio://mlpipeline/kfp", "Kubeflow Pipelines copies artifacts there"),
        ("s3://retraining/retrain.json", "s3://retraining/kfp", "Kubeflow Pipelines copies artifacts there"),
    ],
)
def test_state_that_steps_cannot_use_is_refused(
    storage: None, submitted: Submitted, state: str, root: str, named: str
) -> None:
    with pytest.raises(UserError, match=named):
        submit("--state", state, "--pipeline-root", root, "--param", "recipe=demo")
    assert not submitted


@pytest.mark.parametrize("root", [(), ("--pipeline-root", "minio://mlpipeline/kfp")])
def test_artifact_root_serves_retraining(storage: None, submitted: Submitted, root: tuple[str, ...]) -> None:
    submit("--state", STATE, *root, "--artifact-root", "s3://mlpipeline/mlgo", "--param", "recipe=demo")
    assert submitted[0][0].artifact_root == "s3://mlpipeline/mlgo"


def test_missing_deployed_policy_is_refused(storage: None, submitted: Submitted) -> None:
    save_state(STATE, load_state(STATE).promoted(replace(OLD, policy="gs://retraining/gone")))
    with pytest.raises(UserError, match="is missing or has changed"):
        submit("--state", STATE, "--pipeline-root", ROOT, "--param", "recipe=demo")
    assert not submitted
