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
from components.platform.storage.object_storage.object_store import StoredObject
from components.platform.storage.object_storage.remote import ABANDONED_AFTER_S, read_remote_manifest
from components.platform.storage.object_storage.shared_write import write_shared
from components.platform.storage.object_storage.stores import server_time
from components.platform.storage.object_storage.sweep import sweep
from components.platform.storage.uri import ObjectUri, mirror
from pipelines.cli.storage import storage_group
from tests.support.buckets import names, put_object


def write(storage_uri: ObjectUri, text: str) -> None:
    with publish(mirror(storage_uri), "trace") as directory:
        (directory / "a").write_text(text)


HALF = "data/0123456789ab-01234567"


@pytest.fixture
def tomorrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Advance the server's clock by a day and an hour for the sweep."""
    later = timedelta(seconds=ABANDONED_AFTER_S + 3600)
    monkeypatch.setattr(sweep_module, "server_time", lambda storage_uri: server_time(storage_uri) + later)


def test_abandoned_folders_are_removed_and_artifacts_stay(storage_uri: ObjectUri, tomorrow: None) -> None:
    write(storage_uri / "corpus", "sound")
    for name in (f"corpus/{HALF}/a", f"corpus/{HALF}/@packs/0000.tar", f"never/published/{HALF}/a b\u00e9"):
        put_object(storage_uri, name)
    for name in ("corpus/data/mine/a", "data/0123/a", "loose", "other/manifest.json", "0123456789ab-01234567/a"):
        put_object(storage_uri, name, '{"version": 1}')
    before = set(names(storage_uri))
    expected = {str(folder.uri): len(folder.versions) for folder in sweep(storage_uri, dry_run=True)}
    assert expected == {f"{storage_uri}/corpus/{HALF}": 2, f"{storage_uri}/never/published/{HALF}": 1}
    assert set(names(storage_uri)) == before
    assert {str(folder.uri) for folder in sweep(storage_uri)} == expected.keys()
    assert before - set(names(storage_uri)) == {
        f"corpus/{HALF}/a",
        f"corpus/{HALF}/@packs/0000.tar",
        f"never/published/{HALF}/a b\u00e9",
    }
    assert list(sweep(storage_uri)) == []
    assert (fetch(storage_uri / "corpus") / "a").read_text() == "sound"


def test_folder_of_a_live_writer_stays(storage_uri: ObjectUri) -> None:
    put_object(storage_uri, f"corpus/{HALF}/a")
    assert list(sweep(storage_uri)) == [] and set(names(storage_uri)) == {f"corpus/{HALF}/a"}


@pytest.mark.parametrize("storage_uri", ["gs"], indirect=True)
def test_folder_with_one_recent_object_stays(storage_uri: ObjectUri, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_module, "ABANDONED_AFTER_S", 2.0)
    put_object(storage_uri, f"corpus/{HALF}/a")
    time.sleep(5)
    put_object(storage_uri, f"corpus/{HALF}/b")
    assert list(sweep(storage_uri, older_than_s=3.0)) == []


@pytest.mark.parametrize("storage_uri", ["gs"], indirect=True)
def test_folder_that_a_reader_may_be_reading_stays(storage_uri: ObjectUri, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest named the folder until a moment ago; its writer was killed before it removed the old files."""
    monkeypatch.setattr(sweep_module, "ABANDONED_AFTER_S", 2.0)
    write(storage_uri, "old")
    old = read_remote_manifest(storage_uri).data
    time.sleep(5)
    with monkeypatch.context() as killed:
        killed.setattr(remote_module, "_remove", lambda folder: None)
        write(storage_uri, "new")
    assert any(name.startswith(old) for name in set(names(storage_uri)))
    assert list(sweep(storage_uri, older_than_s=3.0)) == []
    later = timedelta(seconds=5)
    monkeypatch.setattr(sweep_module, "server_time", lambda storage_uri: server_time(storage_uri) + later)
    assert [folder.uri for folder in sweep(storage_uri, older_than_s=3.0)] == [storage_uri / old]
    assert (fetch(storage_uri) / "a").read_text() == "new"


def test_folder_with_an_unreadable_manifest_stays(
    storage_uri: ObjectUri, tomorrow: None, capsys: pytest.CaptureFixture[str]
) -> None:
    put_object(storage_uri, "manifest.json", "{")
    put_object(storage_uri, f"{HALF}/a")
    assert list(sweep(storage_uri)) == [] and f"warning: keeping {storage_uri}/{HALF}: " in capsys.readouterr().out


def test_folder_that_contains_another_artifact_stays(storage_uri: ObjectUri, tomorrow: None) -> None:
    write(storage_uri / HALF / "nested", "sound")
    assert list(sweep(storage_uri)) == []
    assert (fetch(storage_uri / HALF / "nested") / "a").read_text() == "sound"


def test_swept_writer_uploads_again(storage_uri: ObjectUri, tomorrow: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer is suspended for a day between its last file and its manifest."""
    transfer, in_time = remote_module._transfer, [False, True]
    swept: list[str] = []

    def transfer_then_sleep(*arguments: object) -> None:
        transfer(*arguments)  # type: ignore[arg-type]
        if not swept:
            swept.extend(str(folder.uri) for folder in sweep(storage_uri))

    monkeypatch.setattr(remote_module, "_transfer", transfer_then_sleep)
    monkeypatch.setattr(remote_module, "_published_in_time", lambda *_: in_time.pop(0))
    write(storage_uri, "late")
    assert len(swept) == 1 and in_time == []
    assert set(names(storage_uri)) == {"manifest.json", f"{read_remote_manifest(storage_uri).data}/a"}


def test_writer_suspended_before_its_manifest_does_not_write_it(
    storage_uri: ObjectUri, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manifest whose answer is lost could not be withdrawn."""
    write(storage_uri, "old")
    before, now = read_remote_manifest(storage_uri), [server_time(storage_uri)]
    now.insert(0, now[0] + timedelta(seconds=ABANDONED_AFTER_S + 3600))
    manifests: list[str] = []

    def write_and_keep(uri: ObjectUri, content: bytes, version: str) -> StoredObject:
        manifests.append(version)
        return write_shared(uri, content, version)

    monkeypatch.setattr(remote_module, "server_time", lambda _uri: now.pop(0))
    monkeypatch.setattr(remote_module, "write_shared", write_and_keep)
    write(storage_uri, "new")
    assert manifests == [before.version] and now == []
    assert set(names(storage_uri)) == {"manifest.json", f"{read_remote_manifest(storage_uri).data}/a"}


def test_writer_detects_by_server_time_that_it_is_late(storage_uri: ObjectUri, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as late, pytest.raises(UserError, match="more than"):
        late.setattr(remote_module, "ABANDONED_AFTER_S", -1.0)
        write(storage_uri, "late")
    assert set(names(storage_uri)) == set()
    write(storage_uri, "sound")
    with monkeypatch.context() as late, pytest.raises(UserError, match="more than"):
        late.setattr(remote_module, "ABANDONED_AFTER_S", -1.0)
        write(storage_uri, "late")
    assert (fetch(storage_uri) / "a").read_text() == "sound", "no manifest was written"


def test_manifest_that_came_too_late_is_withdrawn(storage_uri: ObjectUri, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer is suspended between its last question for the time and the manifest, each time."""
    early = server_time(storage_uri) - timedelta(days=1)
    with monkeypatch.context() as late, pytest.raises(UserError, match="more than"):
        late.setattr(remote_module, "ABANDONED_AFTER_S", -1.0)
        late.setattr(remote_module, "server_time", lambda _uri: early)
        write(storage_uri, "late")
    assert set(names(storage_uri)) == set()


def test_sweep_command_lists_what_it_removes(storage_uri: ObjectUri, tomorrow: None) -> None:
    put_object(storage_uri, f"corpus/{HALF}/a")
    run = CliRunner()
    output = run.invoke(storage_group, ["sweep", str(storage_uri), "--dry-run"], catch_exceptions=False).output
    assert f"would remove {storage_uri}/corpus/{HALF}: 1 objects" in output and "1 abandoned folders" in output
    output = run.invoke(
        storage_group, ["sweep", f"{storage_uri.scheme}://{storage_uri.bucket}/"], catch_exceptions=False
    ).output
    assert f"removed {storage_uri}/corpus/{HALF}: 1 objects" in output and set(names(storage_uri)) == set()
    assert run.invoke(storage_group, ["sweep", str(storage_uri), "--older-than-hours", "1"]).exit_code == 2
    for wrong in ("/tmp", "gs://", "gs://bucket//x", "s3://"):
        with pytest.raises(UserError):
            run.invoke(storage_group, ["sweep", wrong], catch_exceptions=False)
    assert "Examples:" in run.invoke(storage_group, ["sweep", "--help"]).output
