"""moto's S3 server plus what it lacks and our tests need.

These are atomic conditional writes (moto checks and writes in two steps, so racing writers could all win), a server
that ignores or rejects conditions as older ones do, a bucket named "forbidden" that answers 403, one named
"read-only" that does so for writes, and requests that fail or hang on demand. Everything else is moto's.

    python -m tests.servers.s3_server --port 9000 --bucket mlpipeline
"""

from __future__ import annotations

import argparse
import io
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from tests.servers.http_server import serving
from tests.servers.storage_server import FORBIDDEN, READ_ONLY, Faults

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
"""Environment of a client of the server."""
CONDITIONS = ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH")
LATE_S = 0.05
"""After a conflict, a write that commits nevertheless."""


@dataclass
class Behaviour:
    """Differences of the server from S3; may be changed while it runs.

    Attributes:
        faults: requests that fail. A request "whose answer is lost" ends without an answer.
        conditions: "kept", "ignored" or "rejected" conditions of writes; "half kept": If-Match of present objects is
            ignored.
        conflicts: so many of the next conditional writes answer 409.
        conflicts_commit: whether these are executed nevertheless, a moment after the answer.
        deletes_are_checked: whether deleting an object that does not exist answers 404, as Cloud Storage does.
        page: objects that an answer lists; None for S3's 1,000.
        requests: methods and paths so far.
    """

    faults: Faults = field(default_factory=Faults)
    conditions: str = "kept"
    conflicts: int = 0
    conflicts_commit: bool = False
    deletes_are_checked: bool = False
    page: int | None = None
    requests: list[str] = field(default_factory=list)


class Application:
    """WSGI application around moto's; one request at a time, which makes check and write atomic."""

    def __init__(self, behaviour: Behaviour) -> None:
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._behaviour = behaviour
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        behaviour = self._behaviour
        fault = behaviour.faults.next()
        behaviour.requests.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        writes = environ["REQUEST_METHOD"] not in ("GET", "HEAD") and environ["PATH_INFO"].startswith(f"/{READ_ONLY}/")
        if environ["PATH_INFO"].startswith(f"/{FORBIDDEN}") or writes:
            return _error(start, "403 Forbidden", "AccessDenied", "Access Denied")
        if fault == "refused":
            return _error(start, "503 Slow Down", "SlowDown", "Please reduce your request rate.")
        if environ["REQUEST_METHOD"] == "PUT" and any(name in environ for name in CONDITIONS):
            if behaviour.conditions == "rejected":
                return _error(start, "501 Not Implemented", "NotImplemented", "A header is not implemented.")
            if behaviour.conflicts:
                behaviour.conflicts -= 1
                if behaviour.conflicts_commit:
                    content = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
                    threading.Timer(LATE_S, self._write, [{**environ, "wsgi.input": io.BytesIO(content)}]).start()
                code = "ConditionalRequestConflict"
                return _error(start, "409 Conflict", code, "A conflicting operation occurred during the upload.")
            if behaviour.conditions == "half kept" and self._exists(environ):
                environ = {name: value for name, value in environ.items() if name != "HTTP_IF_MATCH"}
            if behaviour.conditions == "ignored":
                environ = {name: value for name, value in environ.items() if name not in CONDITIONS}
        if behaviour.deletes_are_checked and environ["REQUEST_METHOD"] == "DELETE" and not self._exists(environ):
            return _error(start, "404 Not Found", "NoSuchKey", "The specified key does not exist.")
        if behaviour.page and "list-type=2" in environ["QUERY_STRING"]:
            environ = {**environ, "QUERY_STRING": f"{environ['QUERY_STRING']}&max-keys={behaviour.page}"}
        with self._lock:
            blocks = list(self._moto(environ, start if not fault else _discard))
        if fault == "answer is an error":
            return _error(start, "500 Internal Server Error", "InternalError", "We encountered an internal error.")
        if fault == "answer is lost":
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionResetError
        return blocks

    def _write(self, environ: dict[str, Any]) -> None:
        with self._lock:
            list(self._moto(environ, _discard))

    def _exists(self, environ: dict[str, Any]) -> bool:
        statuses: list[str] = []
        with self._lock:
            head = {name: value for name, value in environ.items() if name not in CONDITIONS}
            head |= {"REQUEST_METHOD": "HEAD", "CONTENT_LENGTH": "0", "wsgi.input": io.BytesIO()}
            list(self._moto(head, lambda status, *_: statuses.append(status)))
        return statuses == ["200 OK"]


def _discard(*_arguments: object) -> None:
    pass


def _error(start: Callable[..., Any], status: str, code: str, message: str) -> Iterable[bytes]:
    content = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
    start(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(content)))])
    return [content]


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        pass


def make_s3_server(host: str, port: int, behaviour: Behaviour | None = None) -> BaseWSGIServer:
    """Return a server that listens but does not serve yet; port 0 means any. It has no buckets."""
    return make_server(host, port, Application(behaviour or Behaviour()), threaded=True, request_handler=_Quiet)


def create_bucket(url: str, bucket: str) -> None:
    import boto3

    client = boto3.client(
        "s3", endpoint_url=url, aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
    )
    client.create_bucket(Bucket=bucket)


@contextmanager
def s3_server(bucket: str, behaviour: Behaviour | None = None) -> Iterator[str]:
    """Serve from memory during the block; yield the URL for AWS_ENDPOINT_URL_S3."""
    behaviour = behaviour or Behaviour()
    server = make_s3_server("127.0.0.1", 0, behaviour)
    with serving(server) as url:
        try:
            create_bucket(url, bucket)
            create_bucket(url, READ_ONLY)
            yield url
        finally:
            behaviour.faults.silent.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--bucket", default="mlpipeline")
    options = parser.parse_args()
    server = make_s3_server(options.host, options.port)
    threading.Thread(target=create_bucket, args=(f"http://127.0.0.1:{options.port}", options.bucket)).start()
    server.serve_forever()


if __name__ == "__main__":
    main()
