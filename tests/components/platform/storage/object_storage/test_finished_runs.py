"""The sweep of ended runs removes their work once its result is published, and nothing of any other run."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from components.platform.storage import publish
from components.platform.storage.kinds import Kind
from components.platform.storage.object_storage import finished_runs
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.object_storage.finished_runs import sweep_finished
from components.platform.storage.object_storage.remote import ABANDONED_AFTER_S
from components.platform.storage.object_storage.stores import server_time
from components.platform.storage.shared_state.published_work import record_publication
from components.platform.storage.shared_state.root_lease import LATEST, RootLease
from components.platform.storage.shared_state.versioned_json import read_versioned
from components.platform.storage.shared_state.workdir import push_file
from components.platform.storage.uri import ObjectUri, mirror
from pipelines.cli.storage import storage_group
from tests.support.buckets import names, put_object, remove_object

CHECKPOINT = "000001-01234567"
PROBE = "run/policy/manifest.json.condition-0123abcd"
STEP = "run/policy.step"


@pytest.fixture
def uri(storage_uri: ObjectUri) -> ObjectUri:
    return storage_uri


@pytest.fixture
def tomorrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advance the server's clock by a day and an hour for the sweep."""
    later = timedelta(seconds=ABANDONED_AFTER_S + 3600)
    monkeypatch.setattr(finished_runs, "server_time", lambda uri: server_time(uri) + later)


def take(uri: ObjectUri) -> RootLease:
    root = mirror(uri / "run/ppo")
    root.mkdir(parents=True, exist_ok=True)
    return RootLease(root, "training", results="checkpoints/*/*")


def publish_text(directory: Path, kind: Kind, text: str) -> None:
    with publish(directory, kind) as partial:
        (partial / "a").write_text(text)


def train(uri: ObjectUri, ending: str = "") -> None:
    """Leave what a training leaves; `ending`: where it fails."""
    with take(uri) as lease, record_publication(lease, mirror(uri / "run/policy")):
        publish_text(lease.root / "checkpoints" / CHECKPOINT, "checkpoint", "weights")
        lease.update(checkpoints=[CHECKPOINT])
        events = lease.root / "tensorboard" / "events"
        events.parent.mkdir(exist_ok=True)
        events.write_text("curve")
        push_file(events)
        if ending == "before publication":
            raise OSError
        publish_text(mirror(uri / "run/policy"), "policy", "policy")
    put_object(uri, STEP, json.dumps({"step": "follows"}))
    put_object(uri, PROBE, "probe")


def work(uri: ObjectUri) -> set[str]:
    return {name for name in names(uri) if name.startswith("run/ppo/")}


def test_work_of_an_ended_run_is_removed_and_its_policy_stays(uri: ObjectUri, tomorrow: None) -> None:
    train(uri)
    for name in ("run/ppo/mine", "other.step", "x.condition-0123", "x.condition-0123abcd", "other/latest.json"):
        put_object(uri, name, '{"step": 1, "released": true, "published": "no"}')
    before = set(names(uri))
    listed = [str(leftover.uri) for leftover in sweep_finished(uri, dry_run=True)]
    assert sorted(listed) == [f"{uri}/run/policy.step", f"{uri}/{PROBE}", f"{uri}/run/ppo"]
    assert set(names(uri)) == before
    assert sorted(str(leftover.uri) for leftover in sweep_finished(uri)) == sorted(listed)
    gone = before - set(names(uri))
    assert {STEP, PROBE, f"run/ppo/{LATEST}", "run/ppo/tensorboard/events"} <= gone
    assert gone - {STEP, PROBE} == work(uri) ^ {name for name in before if name.startswith("run/ppo/")}
    assert work(uri) == {"run/ppo/mine"}
    assert (fetch(uri / "run/policy") / "a").read_text() == "policy"
    assert list(sweep_finished(uri)) == []


def test_nothing_is_removed_before_its_time(uri: ObjectUri) -> None:
    train(uri)
    assert list(sweep_finished(uri)) == []


def test_run_that_failed_keeps_its_work(uri: ObjectUri, tomorrow: None) -> None:
    with pytest.raises(OSError):
        train(uri, "before publication")
    assert list(sweep_finished(uri)) == [] and f"run/ppo/{LATEST}" in work(uri)


def test_run_whose_lease_is_held_keeps_its_work(uri: ObjectUri, tomorrow: None) -> None:
    """One that is extended: its result of yesterday does not count any more, also if the extension fails."""
    train(uri)
    with take(uri):
        assert [leftover.uri for leftover in sweep_finished(uri / "run/ppo")] == []
    with pytest.raises(OSError):
        train(uri, "before publication")
    assert list(sweep_finished(uri / "run/ppo")) == []


def test_run_whose_policy_is_missing_keeps_its_work(
    uri: ObjectUri, tomorrow: None, capsys: pytest.CaptureFixture[str]
) -> None:
    train(uri)
    remove_object(uri, "run/policy/manifest.json")
    assert [str(leftover.uri) for leftover in sweep_finished(uri)] == [f"{uri}/{PROBE}"]
    assert f"{uri}/run/policy" in capsys.readouterr().out


def test_run_with_one_recent_object_keeps_its_work(
    uri: ObjectUri, tomorrow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(uri)
    monkeypatch.setattr(finished_runs, "_is_older", lambda stored, _before: not stored.name.endswith("events"))
    assert [leftover.uri for leftover in sweep_finished(uri / "run/ppo")] == []


def test_run_that_starts_during_the_sweep_loses_nothing(
    uri: ObjectUri, tomorrow: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the sweep replaces the lease, or between that and the removal."""
    train(uri)
    write = finished_runs.write_versioned

    def start_then_write(*arguments: object) -> object:
        with take(uri):
            pass
        return write(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(finished_runs, "write_versioned", start_then_write)
    assert list(sweep_finished(uri / "run/ppo")) == []
    assert read_versioned(f"{uri}/run/ppo/{LATEST}").content["checkpoints"] == [CHECKPOINT]  # type: ignore[index]

    def write_then_start(*arguments: object) -> object:
        written = write(*arguments)  # type: ignore[arg-type]
        with take(uri) as lease:
            assert lease.content["checkpoints"] == []
            publish_text(lease.root / "checkpoints/000001-89abcdef", "checkpoint", "new")
            lease.update(checkpoints=["000001-89abcdef"])
        return written

    monkeypatch.setattr(finished_runs, "write_versioned", write_then_start)
    assert len(list(sweep_finished(uri / "run/ppo"))) == 1
    assert read_versioned(f"{uri}/run/ppo/{LATEST}").content["checkpoints"] == ["000001-89abcdef"]  # type: ignore[index]
    assert (fetch(uri / "run/ppo/checkpoints/000001-89abcdef") / "a").read_text() == "new"
    assert not any(CHECKPOINT in name for name in names(uri))


def test_sweep_that_is_killed_is_continued(uri: ObjectUri, tomorrow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    train(uri)
    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(finished_runs, "remove_objects", lambda *_swept, **_last: interrupted())
        list(sweep_finished(uri / "run/ppo"))
    assert len(list(sweep_finished(uri / "run/ppo"))) == 1 and not work(uri)


def interrupted() -> None:
    raise KeyboardInterrupt


def test_command_removes_leftovers_only_if_asked(uri: ObjectUri, tomorrow: None) -> None:
    train(uri)
    run = CliRunner()
    before = set(names(uri))
    for options in ([], ["--finished", "--dry-run"]):
        output = run.invoke(storage_group, ["sweep", str(uri), *options], catch_exceptions=False).output
        assert set(names(uri)) == before
    assert f"{uri}/run/ppo" in output
    output = run.invoke(storage_group, ["sweep", str(uri), "--finished"], catch_exceptions=False).output
    assert "3 leftovers" in output and not work(uri)
