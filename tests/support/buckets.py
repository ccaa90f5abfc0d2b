"""Fixtures for buckets on real servers, and access to their objects.

Cloud Storage is the emulator with preconditions, or the server at STORAGE_EMULATOR_HOST. S3 is moto's server, or that
at MLGO_TEST_S3_URL with the credentials of the environment; and SeaweedFS.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from components.platform.storage.object_storage import gcs, s3
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.uri import ObjectUri
from tests.servers.s3_server import CREDENTIALS, s3_server
from tests.servers.seaweedfs_server import WEED, seaweedfs_server
from tests.servers.storage_server import storage_server

S3_VARIABLE = "MLGO_TEST_S3_URL"


@contextmanager
def local_bucket(bucket: str, environment: pytest.MonkeyPatch, cache: Path | None = None, **more: Any) -> Iterator[str]:
    """Serve as storage_server, to this process and its children.

    Args:
        cache: directory of downloads and mirrors; None for the usual one.
    """
    with storage_server(bucket, **more) as url:
        environment.setenv(gcs.EMULATOR_VARIABLE, url)
        if cache:
            environment.setenv("MLGO_CACHE_DIR", str(cache))
        gcs._client.cache_clear()
        yield url
    gcs._client.cache_clear()


@pytest.fixture(scope="session")
def storage_host() -> Iterator[str]:
    """The URL of the storage server."""
    if running_server := os.environ.get(gcs.EMULATOR_VARIABLE):
        yield running_server
        return
    with storage_server("mlgo-test") as url:
        yield url


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory, and thus mirrors, for this test only."""
    monkeypatch.setenv("MLGO_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def gs_uri(storage_host: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectUri]:
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


@pytest.fixture(params=["gs", "s3"])
def storage_uri(request: pytest.FixtureRequest) -> ObjectUri:
    """A URI on each of two servers: what holds on one of them may not on the other."""
    uri: ObjectUri = request.getfixturevalue(f"{request.param}_uri")
    return uri


@pytest.fixture(params=["gs", "s3", "seaweedfs"])
def any_uri(request: pytest.FixtureRequest) -> ObjectUri:
    """A URI in each kind of object storage."""
    uri: ObjectUri = request.getfixturevalue(f"{request.param}_uri")
    return uri


@pytest.fixture(scope="session")
def s3_host() -> Iterator[str]:
    """The URL of the S3 server."""
    if running_server := os.environ.get(S3_VARIABLE):
        yield running_server
        return
    with s3_server("mlgo-test") as url:
        yield url


@pytest.fixture
def s3_uri(s3_host: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectUri]:
    """An s3:// URI in the bucket that no other test uses; its objects are deleted afterwards."""
    yield from _make_s3_uri(s3_host, monkeypatch)


@pytest.fixture(scope="session")
def seaweedfs_host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a SeaweedFS server; a test is skipped without its program."""
    if WEED is None:
        pytest.skip("weed, SeaweedFS's server, is not installed")
    with seaweedfs_server("mlgo-test", tmp_path_factory.mktemp("seaweedfs")) as url:
        yield url


@pytest.fixture
def seaweedfs_uri(seaweedfs_host: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectUri]:
    """As `s3_uri`, on SeaweedFS."""
    yield from _make_s3_uri(seaweedfs_host, monkeypatch)


def _make_s3_uri(host: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectUri]:
    use_s3(host, monkeypatch)
    uri = ObjectUri("s3", "mlgo-test", f"test-{secrets.token_hex(4)}")
    yield uri
    for stored in store_of(uri).objects(uri):
        remove_object(uri, stored.name.removeprefix(f"{uri.path}/"))
    s3._client.cache_clear()


def use_s3(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Direct S3 requests of this process and its children to a server for the rest of the test."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", url)
    for name, value in CREDENTIALS.items():
        if name not in os.environ:
            monkeypatch.setenv(name, value)
    s3._client.cache_clear()


def put_object(storage_uri: ObjectUri, name: str, content: str | bytes = "half") -> None:
    """Write an object below `storage_uri` as another tool does, without conditions."""
    content = content.encode() if isinstance(content, str) else content
    key = f"{storage_uri.path}/{name}"
    if storage_uri.scheme == "gs":
        gcs.bucket_of(storage_uri).blob(key).upload_from_string(content)
    else:
        s3._client().put_object(Bucket=storage_uri.bucket, Key=key, Body=content)


def remove_object(storage_uri: ObjectUri, name: str) -> None:
    store_of(storage_uri).delete(storage_uri / name)


def names(storage_uri: ObjectUri) -> list[str]:
    """Return the names of the objects below `storage_uri`."""
    return [stored.name.removeprefix(f"{storage_uri.path}/") for stored in store_of(storage_uri).objects(storage_uri)]
