"""Versioned JSON documents: no concurrent change is lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from components.platform.errors import UserError
from components.platform.storage.shared_state.versioned_json import read_versioned, write_versioned
from components.platform.storage.uri import ObjectUri, parse_location
from tests.support.buckets import put_object


@pytest.fixture(params=["path", "gs", "s3"])
def document(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "path":
        return str(tmp_path / "deep" / "state.json")
    folder: ObjectUri = request.getfixturevalue(f"{request.param}_uri")
    return str(folder / "state.json")


def test_written_document_is_read_back(document: str) -> None:
    assert read_versioned(document).content is None
    write_versioned(document, {"a": 1}, read_versioned(document))
    write_versioned(document, {"a": 2}, read_versioned(document))
    assert read_versioned(document).content == {"a": 2}


def test_concurrent_change_is_not_overwritten(document: str) -> None:
    first, second = read_versioned(document), read_versioned(document)
    write_versioned(document, {"by": "first"}, first)
    with pytest.raises(UserError, match="concurrently"):
        write_versioned(document, {"by": "second"}, second)
    assert read_versioned(document).content == {"by": "first"}


def test_concurrent_increments_are_all_counted(document: str) -> None:
    def count(_number: int) -> None:
        while True:
            before = read_versioned(document)
            try:
                write_versioned(document, {"n": (before.content or {"n": 0})["n"] + 1}, before)
                return
            except UserError:
                continue

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(count, range(12)))
    assert read_versioned(document).content == {"n": 12}


def test_invalid_document_is_named(document: str) -> None:
    location = parse_location(document)
    if isinstance(location, ObjectUri):
        put_object(replace(location, path=location.path.removesuffix("/state.json")), "state.json", "[1]")
    else:
        Path(document).parent.mkdir()
        Path(document).write_text("{")
    with pytest.raises(UserError, match=r"state\.json is not (valid JSON|a JSON object)"):
        read_versioned(document)
