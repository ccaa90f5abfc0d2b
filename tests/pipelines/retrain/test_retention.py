"""The sweep of old runs removes those that failed or were refused, and nothing that a promoted policy names."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from click.testing import CliRunner

from components.platform.errors import UserError
from components.platform.storage.object_storage.stores import server_time
from components.platform.storage.uri import ObjectUri
from pipelines.cli.storage import storage_group
from pipelines.retrain import retention
from pipelines.retrain.retention import MIN_DAYS, sweep_runs
from pipelines.retrain.state import Decision, State, load_state, save_state
from tests.pipelines.retrain.test_promote import OLD
from tests.support.buckets import names, put_object

FAILED, REFUSED, PROMOTED, REUSED, UNJUDGED = (f"{digit * 8}-0000-4000-8000-000000000000" for digit in "12345")
JOB = "mlgo-training-20260101000000"
TASK = "0" * 8 + "-0000-4000-8000-000000000001"


@pytest.fixture
def uri(any_uri: ObjectUri) -> ObjectUri:
    return any_uri


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advance the server's clock by the minimum age and an hour."""
    passed = timedelta(days=MIN_DAYS, hours=1)
    monkeypatch.setattr(retention, "server_time", lambda place: server_time(place) + passed)


def artifact(uri: ObjectUri, run: str, task: str, name: str) -> str:
    """Write an artifact of a task as on KFP; return its URI."""
    place = f"mlgo-training/{run}/{task}/{TASK}/{name}"
    for file in ("manifest.json", "data/0123456789ab-01234567/a"):
        put_object(uri, f"{place}/{file}")
    return f"{uri}/{place}"


def decision(kind: str, run: str, policy: str) -> Decision:
    return Decision(kind, 1.0, "me", "why", policy, run[:8], run)  # type: ignore[arg-type]


def train(uri: ObjectUri) -> str:
    """Leave runs that failed, were refused, promoted, reused by a promoted one, or never judged; return the state."""
    artifact(uri, FAILED, "corpus", "corpus")
    refused = artifact(uri, REFUSED, "ppo", "policy")
    artifact(uri, REFUSED, "evaluation", "evaluation")
    reused = artifact(uri, REUSED, "ppo", "policy")
    report = artifact(uri, PROMOTED, "release-report", "release_report")
    artifact(uri, UNJUDGED, "ppo", "policy")
    put_object(uri, f"999/{JOB}/ppo_1/policy/manifest.json")
    for name in (f"other/{FAILED}/x/manifest.json", "mlgo-training/mine/x/manifest.json", f"mlgo-training/{TASK}/page"):
        put_object(uri, name)
    deployed = replace(OLD, policy=reused, evaluation=report, run=PROMOTED)
    decisions = (
        decision("promoted", PROMOTED, reused),
        decision("not promoted", PROMOTED, reused),
        decision("not promoted", REUSED, reused),
        decision("not promoted", REFUSED, refused),
        decision("not promoted", f"projects/p/locations/r/pipelineJobs/{JOB}", "gs://b/policy"),
        decision("not promoted", f"{uri}/other", "gs://b/policy"),
    )
    save_state(f"{uri}/retrain.json", State(deployed, (), decisions))
    return f"{uri}/retrain.json"


def test_failed_and_refused_runs_are_removed_and_others_stay(uri: ObjectUri, later: None) -> None:
    state = train(uri)
    before = set(names(uri))
    listed = {str(run.uri): run.what for run in sweep_runs(uri, [state], MIN_DAYS, dry_run=True)}
    assert listed == {
        f"{uri}/mlgo-training/{FAILED}": "run that ended without a policy",
        f"{uri}/mlgo-training/{REFUSED}": "run whose policy was not promoted",
        f"{uri}/999/{JOB}": "run whose policy was not promoted",
    }
    assert set(names(uri)) == before
    assert {str(run.uri) for run in sweep_runs(uri, [state], MIN_DAYS)} == listed.keys()
    gone = tuple(f"{place.removeprefix(f'{uri}/')}/" for place in listed)
    assert before - set(names(uri)) == {name for name in before if name.startswith(gone)}
    assert list(sweep_runs(uri, [state], MIN_DAYS)) == [] and load_state(state).deployed is not None


def test_run_whose_policy_is_in_the_history_stays(uri: ObjectUri, later: None) -> None:
    state = train(uri)
    loaded = load_state(state)
    kept = replace(OLD, policy=f"{uri}/mlgo-training/{REFUSED}/ppo/{TASK}/policy")
    save_state(state, replace(loaded, history=(kept,)))
    assert f"{uri}/mlgo-training/{REFUSED}" not in {str(run.uri) for run in sweep_runs(uri, [state], MIN_DAYS)}


def test_without_a_state_only_failed_runs_are_removed(uri: ObjectUri, later: None) -> None:
    train(uri)
    assert [str(run.uri) for run in sweep_runs(uri, [], MIN_DAYS)] == [f"{uri}/mlgo-training/{FAILED}"]


def test_young_run_and_part_of_a_run_stay(uri: ObjectUri, monkeypatch: pytest.MonkeyPatch) -> None:
    state = train(uri)
    assert list(sweep_runs(uri, [state], MIN_DAYS)) == []
    passed = timedelta(days=MIN_DAYS, hours=1)
    monkeypatch.setattr(retention, "server_time", lambda place: server_time(place) + passed)
    assert list(sweep_runs(uri / f"mlgo-training/{FAILED}/corpus", [state], MIN_DAYS)) == []


def test_missing_state_is_refused(uri: ObjectUri, later: None) -> None:
    with pytest.raises(UserError, match="there is no state"):
        list(sweep_runs(uri, [f"{uri}/retrain.json"], MIN_DAYS))


def test_command_removes_old_runs_only_if_asked(uri: ObjectUri, later: None) -> None:
    state = train(uri)
    before, run = set(names(uri)), CliRunner()
    for options in ([], ["--older-than", str(MIN_DAYS), "--state", state, "--dry-run"]):
        output = run.invoke(storage_group, ["sweep", str(uri), *options], catch_exceptions=False).output
        assert set(names(uri)) == before
    assert "would remove 3 old runs" in output
    output = run.invoke(
        storage_group, ["sweep", str(uri), "--older-than", str(MIN_DAYS), "--state", state], catch_exceptions=False
    ).output
    assert "removed 3 old runs" in output and set(names(uri)) < before
    assert run.invoke(storage_group, ["sweep", str(uri), "--older-than", "1"]).exit_code == 2
    with pytest.raises(UserError, match="--state without --older-than"):
        run.invoke(storage_group, ["sweep", str(uri), "--state", state], catch_exceptions=False)
