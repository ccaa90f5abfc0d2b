"""The sweep removes folders that killed writers left in a bucket, and nothing else."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest
from click.testing import CliRunner

from components.platform.errors import UserError
from components.platform.storage import publish
from components.platform.storage.object_storage import remote as remote_module
from components.platform.storage.object_storage import sweep as sweep_module
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.object_storage.remote import ABANDONED_AFTER_S, read_remote_manifest
from components.platform.storage.object_storage.stores import server_time
from components.platform.storage.object_storage.sweep import sweep
from components.platform.storage.uri import ObjectUri, mirror
from pipelines.cli.storage import storage_group
from tests.support.buckets import names, put_object


@pytest.fixture
def place(any_place: ObjectUri) -> ObjectUri:
    return any_place


def write(place: ObjectUri, text: str) -> None:
    with publish(mirror(place), "trace") as directory:
        (directory / "a").write_text(text)


HALF = "data/0123456789ab-01234567"


@pytest.fixture
def tomorrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advance the server's clock by a day and an hour for the sweep."""
    later = timedelta(seconds=ABANDONED_AFTER_S + 3600)
    monkeypatch.setattr(sweep_module, "server_time", lambda place: server_time(place) + later)


def test_abandoned_folders_are_removed_and_artifacts_stay(place: ObjectUri, tomorrow: None) -> None:
    write(place / "corpus", "sound")
    for name in (f"corpus/{HALF}/a", f"corpus/{HALF}/@packs/0000.tar", f"never/published/{HALF}/a b\u00e9"):
        put_object(place, name)
    for name in ("corpus/data/mine/a", "data/0123/a", "loose", "other/manifest.json", "0123456789ab-01234567/a"):
        put_object(place, name, '{"version": 1}')
    before = set(names(place))
    expected = {str(folder.uri): len(folder.versions) for folder in sweep(place, dry_run=True)}
    assert expected == {f"{place}/corpus/{HALF}": 2, f"{place}/never/published/{HALF}": 1}
    assert set(names(place)) == before
    assert {str(folder.uri) for folder in sweep(place)} == expected.keys()
    assert before - set(names(place)) == {
        f"corpus/{HALF}/a",
        f"corpus/{HALF}/@packs/0000.tar",
        f"never/published/{HALF}/a b\u00e9",
    }
    assert list(sweep(place)) == []
    assert (fetch(place / "corpus") / "a").read_text() == "sound"


def test_folder_of_a_live_writer_stays(place: ObjectUri) -> None:
    put_object(place, f"corpus/{HALF}/a")
    assert list(sweep(place)) == [] and set(names(place)) == {f"corpus/{HALF}/a"}


def test_folder_with_one_recent_object_stays(place: ObjectUri, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_module, "ABANDONED_AFTER_S", 2.0)
    put_object(place, f"corpus/{HALF}/a")
    time.sleep(5)
    put_object(place, f"corpus/{HALF}/b")
    assert list(sweep(place, older_than_s=3.0)) == []


def test_folder_that_a_reader_may_be_reading_stays(place: ObjectUri, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest named the folder until a moment ago; its writer was killed before it removed the old files."""
    monkeypatch.setattr(sweep_module, "ABANDONED_AFTER_S", 2.0)
    write(place, "old")
    old = read_remote_manifest(place).data
    time.sleep(5)
    with monkeypatch.context() as killed:
        killed.setattr(remote_module, "_remove", lambda folder: None)
        write(place, "new")
    assert any(name.startswith(old) for name in set(names(place)))
    assert list(sweep(place, older_than_s=3.0)) == []
    time.sleep(5)
    assert [folder.data for folder in sweep(place, older_than_s=3.0)] == [old]
    assert (fetch(place) / "a").read_text() == "new"


def test_folder_with_an_unreadable_manifest_stays(
    place: ObjectUri, tomorrow: None, capsys: pytest.CaptureFixture[str]
) -> None:
    put_object(place, "manifest.json", "{")
    put_object(place, f"{HALF}/a")
    assert list(sweep(place)) == [] and f"warning: keeping {place}/{HALF}: " in capsys.readouterr().out


def test_folder_that_contains_another_artifact_stays(place: ObjectUri, tomorrow: None) -> None:
    write(place / HALF / "nested", "sound")
    assert list(sweep(place)) == []
    assert (fetch(place / HALF / "nested") / "a").read_text() == "sound"


def test_swept_writer_uploads_again(place: ObjectUri, tomorrow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer is suspended for a day between its last file and its manifest."""
    transfer, in_time = remote_module._transfer, [False, True]
    swept: list[str] = []

    def transfer_then_sleep(*arguments: object) -> None:
        transfer(*arguments)  # type: ignore[arg-type]
        if not swept:
            swept.extend(folder.data for folder in sweep(place))

    monkeypatch.setattr(remote_module, "_transfer", transfer_then_sleep)
    monkeypatch.setattr(remote_module, "_published_in_time", lambda *_: in_time.pop(0))
    write(place, "late")
    assert len(swept) == 1 and in_time == []
    assert set(names(place)) == {"manifest.json", f"{read_remote_manifest(place).data}/a"}


def test_writer_detects_by_server_time_that_it_is_late(place: ObjectUri, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as late, pytest.raises(UserError, match="takes more than"):
        late.setattr(remote_module, "ABANDONED_AFTER_S", -1.0)
        write(place, "late")
    assert set(names(place)) == set()
    write(place, "sound")
    assert set(names(place)) == {"manifest.json", f"{read_remote_manifest(place).data}/a"}


def test_sweep_command_lists_what_it_removes(place: ObjectUri, tomorrow: None) -> None:
    put_object(place, f"corpus/{HALF}/a")
    run = CliRunner()
    output = run.invoke(storage_group, ["sweep", str(place), "--dry-run"], catch_exceptions=False).output
    assert f"would remove {place}/corpus/{HALF}: 1 objects" in output and "1 abandoned folders" in output
    output = run.invoke(storage_group, ["sweep", f"{place.scheme}://{place.bucket}/"], catch_exceptions=False).output
    assert f"removed {place}/corpus/{HALF}: 1 objects" in output and set(names(place)) == set()
    assert run.invoke(storage_group, ["sweep", str(place), "--older-than-hours", "1"]).exit_code == 2
    for wrong in ("/tmp", "gs://", "gs://bucket//x", "s3://"):
        with pytest.raises(UserError):
            run.invoke(storage_group, ["sweep", wrong], catch_exceptions=False)
    assert "Examples:" in run.invoke(storage_group, ["sweep", "--help"]).output
