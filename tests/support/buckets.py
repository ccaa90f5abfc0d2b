"""Fixtures for buckets on real servers, and access to their objects.

Cloud Storage is the emulator with preconditions, or the server at STORAGE_EMULATOR_HOST. S3 is moto's server, or that
at MLGO_TEST_S3_URL with the credentials of the environment; and SeaweedFS.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.platform.storage.object_storage import gcs, s3
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.uri import ObjectUri
from tests.servers.s3_server import CREDENTIALS, s3_server
from tests.servers.seaweedfs_server import WEED, seaweedfs_server
from tests.servers.storage_server import storage_server

S3_VARIABLE = "MLGO_TEST_S3_URL"


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
def gs_place(storage_host: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectUri]:
    """A gs:// URI in the bucket that no other test uses; its objects are deleted afterwards."""
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


@pytest.fixture
def place(gs_place: ObjectUri) -> ObjectUri:
    """The gs:// URI; test files about object storage override this by both."""
    return gs_place


@pytest.fixture(params=["gs", "s3", "seaweedfs"])
def any_place(request: pytest.FixtureRequest) -> ObjectUri:
    """A URI in each kind of object storage."""
    found: ObjectUri = request.getfixturevalue(f"{request.param}_place")
    return found


@pytest.fixture(scope="session")
def s3_host() -> Iterator[str]:
    """The URL of the S3 server."""
    if given := os.environ.get(S3_VARIABLE):
        yield given
        return
    with s3_server("mlgo-test") as url:
        yield url


@pytest.fixture
def s3_place(s3_host: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectUri]:
    """An s3:// URI in the bucket that no other test uses; its objects are deleted afterwards."""
    yield from _s3_place(s3_host, monkeypatch)


@pytest.fixture(scope="session")
def seaweedfs_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a SeaweedFS server; a test is skipped without its program."""
    if WEED is None:
        pytest.skip("weed, SeaweedFS's server, is not installed")
    with seaweedfs_server("mlgo-test", tmp_path_factory.mktemp("seaweedfs")) as url:
        yield url


@pytest.fixture
def seaweedfs_place(seaweedfs_host: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectUri]:
    """As `s3_place`, on SeaweedFS."""
    yield from _s3_place(seaweedfs_host, monkeypatch)


def _s3_place(host: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectUri]:
    use_s3(host, monkeypatch)
    uri = ObjectUri("s3", "mlgo-test", f"test-{secrets.token_hex(4)}")
    yield uri
    for found in store_of(uri).objects(uri):
        remove_object(uri, found.name.removeprefix(f"{uri.path}/"))
    s3._client.cache_clear()


def use_s3(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Direct S3 requests of this process and its children to a server for the rest of the test."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
    for name, value in CREDENTIALS.items():
        if name not in os.environ:
            monkeypatch.setenv(name, value)
    s3._client.cache_clear()


def put_object(place: ObjectUri, name: str, content: str | bytes = "half") -> None:
    """Write an object below `place` as another tool does, without conditions."""
    content = content.encode() if isinstance(content, str) else content
    key = f"{place.path}/{name}"
    if place.scheme == "gs":
        gcs.bucket_of(place).blob(key).upload_from_string(content)
    else:
        s3._client().put_object(Bucket=place.bucket, Key=key, Body=content)


def remove_object(place: ObjectUri, name: str) -> None:
    store_of(place).delete(place / name)


def names(place: ObjectUri) -> list[str]:
    """Return the names of the objects below `place`."""
    return [found.name.removeprefix(f"{place.path}/") for found in store_of(place).objects(place)]
