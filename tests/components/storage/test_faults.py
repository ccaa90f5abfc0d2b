"""A server that fails: requests that were not done, and requests that were done without anybody being told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from components.console import UserError
from components.storage import discard, gcs, publish
from components.storage.document import Conflict, Document, read_document, write_document
from components.storage.fetch import fetch
from components.storage.gcs import StorageError
from components.storage.uri import GsUri, mirror
from components.storage.workdir import listing, push_file
from tests.storage_server import FAULTS, Faults, storage_server


@pytest.fixture
def faults(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faults]:
    found = Faults()
    with storage_server("faulty", faults=found) as url:
        monkeypatch.setenv(gcs.EMULATOR, url)
        gcs._client.cache_clear()
        yield found
    gcs._client.cache_clear()


PLACE = GsUri("faulty", "run")


def test_every_third_request_fails_and_nothing_is_lost(faults: Faults, cache: Path) -> None:
    faults.every = 3
    document = f"{PLACE}/state.json"
    version = read_document(document)
    for number in range(6):
        with publish(mirror(PLACE / f"a{number}")) as directory:
            (directory / "text").write_text(str(number))
        version = write_document(document, {"n": number}, version)
    assert faults.failed >= 2 * len(FAULTS)
    cache.rename(cache.with_name("another machine's"))
    assert [(fetch(PLACE / f"a{n}") / "text").read_text() for n in range(6)] == list("012345")
    for number in range(6):
        discard(mirror(PLACE / f"a{number}"))
    faults.every = 0
    assert read_document(document).content == {"n": 5}
    assert listing(mirror(PLACE)).keys() == {"state.json"}, "nothing stays behind"


@pytest.mark.parametrize("way", range(1, len(FAULTS) + 1))
def test_a_change_whose_answer_is_lost_counts_once(faults: Faults, way: int) -> None:
    document = f"{PLACE}/state.json"
    version = write_document(document, {"n": 0}, read_document(document))
    faults.every, faults.times, faults.failed = 1, way, way - 1  # the next request only, in each way in turn
    version = write_document(document, {"n": 1}, version)
    assert faults.failed == way
    assert write_document(document, {"n": 2}, version).content == read_document(document).content == {"n": 2}
    with pytest.raises(Conflict):
        write_document(document, {"n": 3}, version)


def test_what_does_not_recover_is_told_apart_from_what_is_wrong(
    faults: Faults, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gcs, "DEADLINE_S", 1.0)
    faults.every = 1
    path = mirror(PLACE) / "file"
    path.parent.mkdir(parents=True)
    path.write_text("x")
    for call in (lambda: fetch(PLACE), lambda: push_file(path), lambda: write_document(str(PLACE), {}, DOCUMENT)):
        with pytest.raises(StorageError, match="does not answer"):
            call()
    faults.every = 0
    with pytest.raises(UserError, match="no finished artifact") as caught:
        fetch(PLACE)
    assert not isinstance(caught.value, StorageError)


DOCUMENT = Document(None, "0")
