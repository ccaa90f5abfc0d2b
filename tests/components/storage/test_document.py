"""A document that several change: nobody's change is lost unseen."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from components.console import UserError
from components.storage.document import read_document, write_document
from components.storage.gcs import bucket_of
from components.storage.uri import GsUri


@pytest.fixture(params=["path", "uri"])
def document(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "path":
        return str(tmp_path / "deep" / "state.json")
    place: GsUri = request.getfixturevalue("place")
    return str(place / "state.json")


def test_what_was_written_is_read(document: str) -> None:
    assert read_document(document).content is None
    write_document(document, {"a": 1}, read_document(document))
    write_document(document, {"a": 2}, read_document(document))
    assert read_document(document).content == {"a": 2}


def test_a_change_behind_ones_back_is_not_overwritten(document: str) -> None:
    first, second = read_document(document), read_document(document)
    write_document(document, {"by": "first"}, first)
    with pytest.raises(UserError, match="somebody else changed"):
        write_document(document, {"by": "second"}, second)
    assert read_document(document).content == {"by": "first"}


def test_of_many_that_count_each_counts(document: str) -> None:
    def count(_number: int) -> None:
        while True:
            before = read_document(document)
            try:
                write_document(document, {"n": (before.content or {"n": 0})["n"] + 1}, before)
                return
            except UserError:
                continue

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(12)))
    assert read_document(document).content == {"n": 12}


def test_what_is_no_document_is_named(document: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if document.startswith("gs://"):
        place: GsUri = request.getfixturevalue("place")
        bucket_of(place).blob(f"{place.path}/state.json").upload_from_string("[1]")
    else:
        Path(document).parent.mkdir()
        Path(document).write_text("{")
    with pytest.raises(UserError, match=r"state\.json is not (valid JSON|a JSON document)"):
        read_document(document)
