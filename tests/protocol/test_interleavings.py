"""Interleavings of trainers, a sweeper, promoters and a reader lose nothing; `python -m tests.protocol` runs more."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.platform.storage.object_storage.object_store import VersionConflict
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.uri import ObjectUri
from tests.protocol.interleaving import run


def test_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLGO_CACHE_DIR", str(tmp_path))  # which a world sets, too
    done = [run(seed, tmp_path) for seed in range(60)]
    saved, published = sum(len(one.saved) for one in done), sum(len(one.store.commits) for one in done)
    assert saved > 80 and published > 600, "they did something"


def test_known_fault_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A conflict is taken for another writer, as it was once."""

    def write_once(uri: ObjectUri, content: bytes, version: str) -> object:
        store = store_of(uri)
        try:
            return store.write(uri, content, version)
        except VersionConflict:
            if store.read(uri)[0] == content:
                return store.head(uri)
            raise

    monkeypatch.setenv("MLGO_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("components.platform.storage.object_storage.remote.write_shared", write_once)
    with pytest.raises(AssertionError, match="the old policy is there"):
        run(1538, tmp_path)  # the first of 1,700 that finds it
