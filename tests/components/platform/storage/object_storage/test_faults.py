"""A failing server: requests that are not executed, and requests that are executed but whose answer is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from components.platform.errors import UserError
from components.platform.storage import discard, publish
from components.platform.storage.object_storage import gcs
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.object_storage.object_store import StorageError
from components.platform.storage.shared_state.versioned_json import (
    Conflict,
    VersionedJson,
    read_versioned,
    write_versioned,
)
from components.platform.storage.shared_state.workdir import list_files, push_file
from components.platform.storage.uri import ObjectUri, mirror
from tests.servers.storage_server import FAULTS, Faults, storage_server


@pytest.fixture
def faults(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    faults_of_server = Faults()
    with storage_server("faulty", faults=faults_of_server) as url:
        monkeypatch.setenv(gcs.EMULATOR_VARIABLE, url)
        gcs._client.cache_clear()
        yield faults_of_server
    gcs._client.cache_clear()


URI = ObjectUri("gs", "faulty", "run")


def test_nothing_is_lost_if_every_third_request_fails(faults: Faults, cache: Path) -> None:
    faults.every = 3
    document = f"{URI}/state.json"
    version = read_versioned(document)
    for number in range(6):
        with publish(mirror(URI / f"a{number}"), "trace") as directory:
            (directory / "text").write_text(str(number))
        version = write_versioned(document, {"n": number}, version)
    assert faults.failed >= 2 * len(FAULTS)
    cache.rename(cache.with_name("another machine's"))
    assert [(fetch(URI / f"a{n}") / "text").read_text() for n in range(6)] == list("012345")
    for number in range(6):
        discard(mirror(URI / f"a{number}"))
    faults.every = 0
    assert read_versioned(document).content == {"n": 5}
    assert list_files(mirror(URI)).keys() == {"state.json"}, "no other object is left"


@pytest.mark.parametrize("way", range(1, len(FAULTS) + 1))
def test_write_whose_answer_is_lost_is_applied_once(faults: Faults, way: int) -> None:
    document = f"{URI}/state.json"
    version = write_versioned(document, {"n": 0}, read_versioned(document))
    faults.every, faults.times, faults.failed = 1, way, way - 1  # only the next request fails, in the given way
    version = write_versioned(document, {"n": 1}, version)
    assert faults.failed == way
    assert write_versioned(document, {"n": 2}, version).content == read_versioned(document).content == {"n": 2}
    with pytest.raises(Conflict):
        write_versioned(document, {"n": 3}, version)


def test_unavailable_storage_is_distinguished_from_a_missing_artifact(
    faults: Faults, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gcs, "DEADLINE_S", 1.0)
    faults.every = 1
    path = mirror(URI) / "file"
    path.parent.mkdir(parents=True)
    path.write_text("x")
    for call in (lambda: fetch(URI), lambda: push_file(path), lambda: write_versioned(str(URI), {}, DOCUMENT)):
        with pytest.raises(StorageError, match="not answer"):
            call()
    faults.every = 0
    with pytest.raises(UserError, match="finished artifact") as caught:
        fetch(URI)
    assert not isinstance(caught.value, StorageError)


DOCUMENT = VersionedJson(None, "")
