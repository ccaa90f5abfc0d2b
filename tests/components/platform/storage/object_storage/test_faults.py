"""A failing server: requests that are not executed, and requests that are executed but whose answer is lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from components.platform.errors import UserError
from components.platform.storage import discard, publish
from components.platform.storage.object_storage import gcs, s3
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.object_storage.object_store import StorageError
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.shared_state.versioned_json import (
    Conflict,
    VersionedJson,
    read_versioned,
    write_versioned,
)
from components.platform.storage.shared_state.workdir import list_files, push_file
from components.platform.storage.uri import ObjectUri, mirror
from tests.servers.s3_server import Behaviour, s3_server
from tests.servers.storage_server import FAULTS, Faults
from tests.support.buckets import local_bucket, use_s3


@pytest.fixture(params=["gs", "s3"])
def faulty(
    request: pytest.FixtureRequest, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[ObjectUri, Faults]]:
    """A place on a server of its own, and the faults of that."""
    faults = Faults()
    uri = ObjectUri(request.param, "faulty", "run")
    if request.param == "gs":
        with local_bucket(uri.bucket, monkeypatch, faults=faults):
            yield uri, faults
    else:
        with s3_server(uri.bucket, Behaviour(faults)) as url:
            use_s3(url, monkeypatch)
            yield uri, faults
            faults.every = 0
            for stored in store_of(uri).objects(replace(uri, path="")):  # moto's servers share their buckets
                store_of(uri).delete(replace(uri, path=stored.name))
        s3._client.cache_clear()


def test_nothing_is_lost_if_every_third_request_fails(faulty: tuple[ObjectUri, Faults], cache: Path) -> None:
    uri, faults = faulty
    faults.every = 3
    document = f"{uri}/state.json"
    version = read_versioned(document)
    for number in range(6):
        with publish(mirror(uri / f"a{number}"), "trace") as directory:
            (directory / "text").write_text(str(number))
        version = write_versioned(document, {"n": number}, version)
    assert faults.failed >= 2 * len(FAULTS)
    cache.rename(cache.with_name("another machine's"))
    assert [(fetch(uri / f"a{n}") / "text").read_text() for n in range(6)] == list("012345")
    for number in range(6):
        discard(mirror(uri / f"a{number}"))
    faults.every = 0
    assert read_versioned(document).content == {"n": 5}
    assert list_files(mirror(uri)).keys() == {"state.json"}, "no other object is left"


@pytest.mark.parametrize("way", range(1, len(FAULTS) + 1))
def test_write_whose_answer_is_lost_is_applied_once(faulty: tuple[ObjectUri, Faults], way: int) -> None:
    uri, faults = faulty
    document = f"{uri}/state.json"
    version = write_versioned(document, {"n": 0}, read_versioned(document))
    faults.every, faults.times, faults.failed = 1, way, way - 1  # only the next request fails, in the given way
    version = write_versioned(document, {"n": 1}, version)
    assert faults.failed == way
    assert write_versioned(document, {"n": 2}, version).content == read_versioned(document).content == {"n": 2}
    with pytest.raises(Conflict):
        write_versioned(document, {"n": 3}, version)


@pytest.mark.parametrize("faulty", ["gs"], indirect=True)
def test_unavailable_storage_is_distinguished_from_a_missing_artifact(
    faulty: tuple[ObjectUri, Faults], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    uri, faults = faulty
    monkeypatch.setattr(gcs, "DEADLINE_S", 1.0)
    faults.every = 1
    path = mirror(uri) / "file"
    path.parent.mkdir(parents=True)
    path.write_text("x")
    for call in (lambda: fetch(uri), lambda: push_file(path), lambda: write_versioned(str(uri), {}, DOCUMENT)):
        with pytest.raises(StorageError, match="not answer"):
            call()
    faults.every = 0
    with pytest.raises(UserError, match="finished artifact") as caught:
        fetch(uri)
    assert not isinstance(caught.value, StorageError)


DOCUMENT = VersionedJson(None, "")
