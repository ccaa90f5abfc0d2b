"""Fixtures for a bucket on a real server: the emulator with preconditions, or the one at STORAGE_EMULATOR_HOST."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.core.storage import gcs
from components.core.storage.uri import ObjectUri
from tests.storage_server import storage_server


@pytest.fixture(scope="session")
def storage_host() -> Iterator[str]:
    """The URL of the storage server."""
    if given := os.environ.get(gcs.EMULATOR_VARIABLE):
        yield given
        return
    with storage_server("mlgo-test") as url:
        yield url


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory, and thus mirrors, for this test only."""
    monkeypatch.setenv("MLGO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def place(storage_host: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectUri]:
    """A URI in the bucket that no other test uses; its objects are deleted afterwards."""
    from google.cloud import storage

    monkeypatch.setenv(gcs.EMULATOR_VARIABLE, storage_host)
    gcs._client.cache_clear()
    bucket = storage.Client(project="test").bucket("mlgo-test")
    if not bucket.exists():
        bucket.create()
    uri = ObjectUri("gs", "mlgo-test", f"test-{secrets.token_hex(4)}")
    yield uri
    for blob in list(bucket.list_blobs(prefix=f"{uri.path}/")):
        blob.delete()
    gcs._client.cache_clear()
