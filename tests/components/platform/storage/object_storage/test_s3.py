"""S3: conditional writes, failing servers, and errors with a remedy."""

from __future__ import annotations

import pickle
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from components.platform.errors import UserError
from components.platform.storage import publish
from components.platform.storage.object_storage import s3, shared_write
from components.platform.storage.object_storage.confined_files import create_file_below
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.object_storage.object_store import (
    NO_VERSION,
    ObjectMissing,
    StorageError,
    VersionConflict,
)
from components.platform.storage.object_storage.remote import is_complete, read_remote_manifest
from components.platform.storage.object_storage.stores import server_time, store_of
from components.platform.storage.shared_state.versioned_json import read_versioned, write_versioned
from components.platform.storage.uri import ObjectUri, mirror
from tests.servers.s3_server import LATE_S, Behaviour, s3_server
from tests.support.buckets import names, put_object, use_s3

URI = ObjectUri("s3", "faulty", "run")


@pytest.fixture
def behaviour(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Behaviour]:
    """A server of its own for this test, at which s3://faulty is."""
    behaviour_of_server = Behaviour()
    with s3_server("faulty", behaviour_of_server) as url:
        use_s3(url, monkeypatch)
        yield behaviour_of_server
        # moto's servers in one process share their buckets.
        behaviour_of_server.faults.every, behaviour_of_server.conditions = 0, "kept"
        behaviour_of_server.conflicts = 0
        monkeypatch.delenv("AWS_PROFILE", raising=False)
        use_s3(url, monkeypatch)
        for one in store_of(URI).objects(ObjectUri("s3", "faulty", "")):
            store_of(URI).delete(ObjectUri("s3", "faulty", one.name))
    s3._client.cache_clear()


def write(uri: ObjectUri, text: str) -> None:
    with publish(mirror(uri), "trace") as directory:
        (directory / "a").write_text(text)


@pytest.mark.parametrize(
    ("conditions", "verb"), [("ignored", "ignores"), ("half kept", "ignores"), ("rejected", "rejects")]
)
def test_server_without_conditional_writes_is_refused_before_anything_is_written(
    behaviour: Behaviour, conditions: str, verb: str
) -> None:
    behaviour.conditions = conditions
    document = f"{URI}/state.json"
    put_object(URI, "state.json", '{"n": 1}')
    before = read_versioned(document)
    with pytest.raises(StorageError, match=f"{verb} the header If-Match.*concurrent writers") as raised:
        write_versioned(document, {"n": 2}, before)
    assert "conditional writes" in raised.value.remedy
    with pytest.raises(StorageError, match="the header If-Match"), publish(mirror(URI / "corpus"), "corpus"):
        pytest.fail("the block must not run")
    assert names(URI) == ["state.json"] and read_versioned(document).content == {"n": 1}


def test_server_that_ignores_only_if_none_match_is_refused(
    behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.servers.s3_server.CONDITIONS", ("HTTP_IF_NONE_MATCH",))
    behaviour.conditions = "ignored"
    with pytest.raises(StorageError, match="If-None-Match"):
        write_versioned(f"{URI}/state.json", {}, read_versioned(f"{URI}/state.json"))
    assert names(URI) == []


def test_conditional_writes_are_checked_once_for_a_bucket_and_nothing_is_left(behaviour: Behaviour) -> None:
    for number in range(3):
        write(URI / str(number), "x")
    assert sum(".condition-" in request for request in behaviour.requests) == 5
    assert not any(".condition-" in name for name in names(URI))


def test_versions_decide_who_writes_reads_and_deletes(behaviour: Behaviour, tmp_path: Path) -> None:
    store, uri = store_of(URI), URI / "a"
    assert store.read(uri) == (None, NO_VERSION) and store.head(uri) is None
    first = store.write(uri, b"1", NO_VERSION)
    assert store.head(uri) is not None
    with pytest.raises(VersionConflict):
        store.write(uri, b"2", NO_VERSION)
    second = store.write(uri, b"2", first.version)
    with pytest.raises(VersionConflict):
        store.write(uri, b"3", first.version)
    with pytest.raises(ObjectMissing):
        store.download_to(uri, tmp_path / "a", first.version)
    store.delete(uri, first.version)
    assert store.read(uri) == (b"2", second.version)
    store.delete(uri, second.version)
    store.delete(uri, second.version)
    with pytest.raises(VersionConflict):
        store.write(uri, b"3", second.version)
    with pytest.raises(ObjectMissing):
        store.read_range(uri)


@pytest.mark.parametrize("checked", [False, True])
def test_deleting_what_is_gone_changes_nothing(behaviour: Behaviour, checked: bool) -> None:
    behaviour.deletes_are_checked = checked
    store, uri = store_of(URI), URI / "a"
    store.write(uri, b"1", NO_VERSION)
    store.delete(uri)
    assert store.head(uri) is None
    store.delete(uri)
    behaviour.deletes_are_checked = False
    with pytest.raises(UserError, match="nowhere"):
        store.delete(ObjectUri("s3", "nowhere", "a"))


def test_ranges_and_large_files_are_transferred(
    behaviour: Behaviour, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "SINGLE_PUT_BYTES", 1 << 20)  # a larger file is uploaded in parts of 8 MB
    content = bytes(range(256)) * (40 << 10)
    (tmp_path / "large").write_bytes(content)
    store = store_of(URI)
    (updated,) = store.upload([(tmp_path / "large", URI / "large")])
    assert abs((server_time(URI) - updated).total_seconds()) < 60
    assert any("POST" in request for request in behaviour.requests), "a multipart upload"
    assert store.read_range(URI / "large", 1000, 1005) == content[1000:1005]
    store.download([(URI / "large", partial(create_file_below, tmp_path, "back"))])
    assert (tmp_path / "back").read_bytes() == content


def test_listing_of_several_pages_is_complete(behaviour: Behaviour) -> None:
    behaviour.page = 5
    for number in range(11):
        put_object(URI, f"{number:04} é", "x")
    put_object(ObjectUri("s3", "faulty", "runner"), "other")
    asked = len(behaviour.requests)
    assert names(URI) == [f"{number:04} é" for number in range(11)]
    assert len(behaviour.requests) - asked == 3


def unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{unused.getsockname()[1]}")
    monkeypatch.setattr(s3, "ATTEMPTS", 2)


def without_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/nonexistent")


def setting(name: str, value: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda monkeypatch: monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("prepare", "bucket", "problem", "remedy"),
    [
        (unreachable, "faulty", "does not answer: .*Could not connect", "AWS_ENDPOINT_URL_S3"),
        (without_credentials, "faulty", "no credentials for S3 found", "set AWS_ACCESS_KEY_ID"),
        (
            setting("AWS_ENDPOINT_URL_S3", "localhost:9000"),
            "faulty",
            "AWS_ENDPOINT_URL_S3='localhost:9000' is not",
            "=",
        ),
        (setting("AWS_PROFILE", "nobody"), "faulty", "S3 cannot be used: .*nobody", "check AWS_PROFILE"),
        (lambda _: None, "forbidden", r"access is denied: Access Denied \(403\)", "bucket forbidden"),
        (lambda _: None, "no-such-bucket", "no-such-bucket/a/manifest.json: .*bucket does not exist", "is there a"),
    ],
)
def test_failure_is_explained(
    behaviour: Behaviour,
    monkeypatch: pytest.MonkeyPatch,
    prepare: Callable[[pytest.MonkeyPatch], None],
    bucket: str,
    problem: str,
    remedy: str,
) -> None:
    prepare(monkeypatch)
    s3._client.cache_clear()
    uri = ObjectUri("s3", bucket, "a")
    uses: tuple[Callable[[], object], ...] = (partial(fetch, uri), partial(write, uri, "x"))
    for use in uses:
        with pytest.raises(UserError, match=problem) as raised:
            use()
        assert remedy in raised.value.remedy and "\n" not in raised.value.problem


def test_error_passes_between_processes() -> None:
    for error in (ObjectMissing(URI, "gone"), VersionConflict(URI), StorageError("a", "b")):
        back = pickle.loads(pickle.dumps(error))
        assert type(back) is type(error) and str(back) == str(error)


@pytest.mark.parametrize("commits", [False, True], ids=["nothing", "first attempt commits later"])
def test_conflict_of_a_write_is_not_taken_for_another_writer(behaviour: Behaviour, commits: bool) -> None:
    """S3 answers 409 if another write of the name is under way, which may fail: "read, and try again"."""
    document = f"{URI}/state.json"
    version = write_versioned(document, {"n": 0}, read_versioned(document))
    write(URI / "a", "old")
    behaviour.conflicts_commit = commits
    behaviour.conflicts = 1
    version = write_versioned(document, {"n": 1}, version)
    behaviour.conflicts = 1
    write(URI / "a", "new")
    time.sleep(2 * LATE_S)
    assert (mirror(URI / "a") / "a").read_text() == "new"
    remote = read_remote_manifest(URI / "a")
    assert is_complete(remote) and len({name.split("/")[2] for name in names(URI / "a") if "data/" in name}) <= 1
    assert write_versioned(document, {"n": 2}, version).content == read_versioned(document).content == {"n": 2}


def test_name_that_is_always_being_written_is_an_error(behaviour: Behaviour, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_write, "PATIENCE_S", 0.3)
    document = f"{URI}/state.json"
    version = write_versioned(document, {"n": 0}, read_versioned(document))
    behaviour.conflicts = 1000
    with pytest.raises(StorageError, match=r"state\.json"):
        write_versioned(document, {"n": 1}, version)
    behaviour.conflicts = 0
    assert read_versioned(document).content == {"n": 0}
