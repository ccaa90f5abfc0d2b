"""Whatever a server answers, the client command ends with one clear error; while waiting it names the server."""

from __future__ import annotations

import gzip
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from components.platform.console import say_if_slow
from components.platform.errors import UserError
from components.platform.storage.downloads import http_download, retry
from components.platform.storage.object_storage import gcs
from components.platform.storage.object_storage.fetch import fetch_file
from components.platform.storage.object_storage.remote import (
    download_folder,
    read_remote_manifest,
    read_verified_manifest,
)
from components.platform.storage.object_storage.stores import store_of
from components.platform.storage.shared_state.versioned_json import read_versioned
from components.platform.storage.shared_state.workdir import list_files
from components.platform.storage.uri import ObjectUri
from tests.servers.http_server import RawServer, raw_server

EXAMPLES = int(os.environ.get("MLGO_FUZZ_EXAMPLES", "200"))
OK = b"HTTP/1.1 200 OK\r\n"
BODIES = (
    b"",
    b"{}",
    b"[]",
    b"null",
    b"1",
    b'"x"',
    b"<html>proxy</html>",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b"\xff\xfe",
    b'{"items": 3}',
    b'{"items": [3]}',
    b'{"items": [{"name": 3}]}',
    b'{"items": [{}], "nextPageToken": 5}',
    b'{"generation": "x", "name": null}',
    b'{"error": 5}',
    b'{"error": {"message": []}}',
    b'{"version": 1, "files": [{}]}',
)
HEADERS = (
    b"",
    b"Content-Type: application/json\r\n",
    b"Content-Encoding: gzip\r\n",
    b"Content-Encoding: br\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: -1\r\n",
    b"Content-Length: x\r\n",
    b"Content-Length: 999999\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"X-Goog-Hash: crc32c=AAAA\r\n",
    b"X-Goog-Generation: x\r\n",
    b"no colon\r\n",
    b"Content-Range: bytes 0-1/x\r\n",
    b"Location: /again\r\n",
    b"Location: file:///etc/passwd\r\n",
    b"Location: http://[\r\n",
    b"Set-Cookie: \xff\r\n",
    b"A: " + b"x" * 70_000 + b"\r\n",
)
STATUSES = (
    b"200 OK",
    b"204 No",
    b"206 Part",
    b"301 M",
    b"302 F",
    b"400 B",
    b"401 U",
    b"403 F",
    b"404 N",
    b"412 P",
    b"416 R",
)
NOT_HTTP = (
    b"",
    b"\0" * 20,
    b"SSH-2.0-OpenSSH\r\n",
    b"HTTP/9.9 abc\r\n\r\n",
    b"HTTP/1.1 200 OK",
    b"\x15\x03\x01\x00\x02\x02\x50",
)


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    if draw(st.integers(0, 5)) == 0:
        return draw(st.sampled_from(NOT_HTTP) | st.binary(max_size=60))
    body = draw(st.sampled_from(BODIES) | st.binary(max_size=30))
    headers = draw(st.lists(st.sampled_from(HEADERS), max_size=3))
    if b"chunked" in b"".join(headers) and draw(st.booleans()):
        body = draw(
            st.sampled_from([b"5\r\nabcde\r\n0\r\n\r\n", b"5\r\nab", b"zz\r\n", b"-5\r\n", b"5;" + b"x" * 70_000])
        )
    if b"gzip" in b"".join(headers) and draw(st.booleans()):
        body = gzip.compress(body)[: draw(st.integers(0, 40))]
    return b"HTTP/1.1 " + draw(st.sampled_from(STATUSES)) + b"\r\n" + b"".join(headers) + b"\r\n" + body


@pytest.fixture(scope="module")
def server() -> Iterator[RawServer]:
    with raw_server() as running:
        yield running


@pytest.fixture
def storage(server: RawServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[RawServer]:
    """The server as object storage, with deadlines short enough for a test."""
    monkeypatch.setenv(gcs.EMULATOR_VARIABLE, server.url)
    monkeypatch.setenv("MLGO_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(gcs, "DEADLINE_S", 0.05)
    monkeypatch.setattr(gcs, "TIMEOUT_S", (1.0, 1.0))
    gcs._client.cache_clear()
    yield server
    gcs._client.cache_clear()


URI = ObjectUri("gs", "bucket", "a/b")
REQUESTS: tuple[Callable[[Path], object], ...] = (
    lambda directory: store_of(URI).read(URI),
    lambda directory: read_remote_manifest(URI),
    lambda directory: read_verified_manifest(URI),
    lambda directory: read_versioned(str(URI)),
    lambda directory: fetch_file(URI),
    lambda directory: list_files(directory / "cache" / "gs" / "bucket" / "a" / "@" / "a"),
    lambda directory: download_folder(URI, ["c"], Path(tempfile.mkdtemp(dir=directory))),
)


TRUNCATED_REDIRECT = (
    b"HTTP/1.1 301 M\r\nContent-Encoding: gzip\r\nContent-Length: 999999\r\nLocation: /again\r\n\r\n"
    + gzip.compress(b"[" * 60, mtime=0)[:12]
)


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
@given(response=responses(), storage_request=st.sampled_from(REQUESTS))
@example(response=TRUNCATED_REDIRECT, storage_request=REQUESTS[0])
def test_any_object_storage_response_is_handled(
    storage: RawServer, tmp_path: Path, response: bytes, storage_request: Callable[[Path], object]
) -> None:
    storage.response = response
    try:
        storage_request(tmp_path)
    except UserError as error:
        assert error.problem


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let downloads try again at once."""
    monkeypatch.setattr(retry, "PAUSES_S", (0.0, 0.0))


@pytest.mark.usefixtures("no_pauses")
@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
@given(response=responses())
@example(response=TRUNCATED_REDIRECT)
def test_any_web_server_response_is_handled(server: RawServer, tmp_path: Path, response: bytes) -> None:
    server.response = response
    try:
        http_download.download(f"{server.url}/a.tar", tmp_path / "a.tar")
    except UserError as error:
        assert error.problem


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize(
    ("response", "words"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: /again\r\nConnection: close\r\n\r\n", "redirects endlessly"),
        (b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n", "No connection adapters"),
        (b"SSH-2.0-OpenSSH_9\r\n", "cannot download"),
        (OK + b"Content-Length: 9\r\n\r\nabc", "cannot download"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", "cannot download"),
        (b"", "cannot download"),
    ],
)
def test_invalid_web_server_response_is_explained(
    server: RawServer, tmp_path: Path, response: bytes, words: str
) -> None:
    server.response = response
    with pytest.raises(UserError, match=words):
        http_download.download(f"{server.url}/a.tar", tmp_path / "a.tar")


def test_waiting_for_a_silent_web_server_is_reported(
    server: RawServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server.response = None
    monkeypatch.setattr(http_download, "TIMEOUT_S", (1.0, 1.0))
    monkeypatch.setattr(retry, "PAUSES_S", ())
    monkeypatch.setattr(http_download, "say_if_slow", partial(say_if_slow, after_s=0.1))
    with pytest.raises(UserError, match=r"cannot download .*timed out"):
        http_download.download(f"{server.url}/a.tar", tmp_path / "a.tar")
    assert capsys.readouterr().out.startswith(f"waiting for {server.url.removeprefix('http://')} to send")


def test_waiting_for_silent_object_storage_is_reported(
    storage: RawServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    storage.response = None
    monkeypatch.setattr(gcs, "say_if_slow", partial(say_if_slow, after_s=0.1))
    with pytest.raises(UserError, match="does not answer"):
        read_remote_manifest(URI)
    assert f"waiting for object storage at {storage.url} to answer about {URI}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "host", ["127.0.0.1:9023", "localhost", "ftp://host", "http://", "http://host:x", "http://[", " "]
)
def test_invalid_emulator_url_is_refused(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv(gcs.EMULATOR_VARIABLE, host)
    gcs._client.cache_clear()
    with pytest.raises(UserError, match=gcs.EMULATOR_VARIABLE):
        store_of(URI).read(URI)


def test_no_waiting_message_if_data_arrives_in_time(capsys: pytest.CaptureFixture[str]) -> None:
    with say_if_slow("waiting", after_s=0.3) as heard:
        for _ in range(5):
            time.sleep(0.1)
            heard()
    assert capsys.readouterr().out == ""
