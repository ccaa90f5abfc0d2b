"""Bytes that are moved from and to object storage, on both kinds of servers."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from components.platform.errors import UserError
from components.platform.storage.object_storage import s3
from components.platform.storage.object_storage.confined_files import create_file_below
from components.platform.storage.object_storage.object_store import NO_VERSION
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.object_storage.traffic import Traffic, moved
from components.platform.storage.uri import ObjectUri

CONTENT = b"0123456789" * 100


def difference(before: Traffic) -> tuple[int, int]:
    now = moved()
    return now.read_bytes - before.read_bytes, now.written_bytes - before.written_bytes


def test_objects_are_counted_once(storage_uri: ObjectUri, tmp_path: Path) -> None:
    store = store_of(storage_uri)
    store.require_writable(storage_uri / "state.json")  # which writes on some servers
    files = [(tmp_path / name, storage_uri / name) for name in ("a", "b")]
    for path, _uri in files:
        path.write_bytes(CONTENT)

    before = moved()
    store.upload(files)
    store.write(storage_uri / "state.json", b"{}", NO_VERSION)
    assert difference(before) == (0, 2002)

    before = moved()
    assert store.read(storage_uri / "state.json")[0] == b"{}"
    assert store.read_range(storage_uri / "a", 10, 30) == CONTENT[10:30]
    store.download_to(storage_uri / "a", tmp_path / "to")
    names = ("c/d", "e")
    store.download([(storage_uri / "b", partial(create_file_below, tmp_path, name)) for name in names])
    assert difference(before) == (2 + 20 + 1000 + 2000, 0)
    assert (tmp_path / "e").read_bytes() == (tmp_path / "to").read_bytes() == CONTENT


def test_what_is_refused_or_missing_does_not_count(storage_uri: ObjectUri, tmp_path: Path) -> None:
    store = store_of(storage_uri)
    store.write(storage_uri / "state.json", b"{}", NO_VERSION)
    before = moved()
    with pytest.raises(UserError):
        store.write(storage_uri / "state.json", b"{}", NO_VERSION)
    assert store.read(storage_uri / "none")[0] is None
    with pytest.raises(UserError):
        store.download_to(storage_uri / "none", tmp_path / "none")
    store.head(storage_uri / "state.json")
    store.objects(storage_uri)
    assert difference(before) == (0, 0)


def test_large_file_of_s3_is_counted_though_it_has_parts(
    s3_uri: ObjectUri, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3, "SINGLE_PUT_BYTES", 100)
    (tmp_path / "large").write_bytes(CONTENT)
    before = moved()
    store_of(s3_uri).upload([(tmp_path / "large", s3_uri / "large")])
    assert difference(before) == (0, 1000)
