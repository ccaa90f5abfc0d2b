"""gcp-storage-emulator plus the features that it lacks and our tests need.

These are generation preconditions (the emulator ignores ifGenerationMatch, so that all racing writers would win), a
bucket named "forbidden" that answers 403 as Cloud Storage does to an account without a role, one named "read-only" that
does so for writes, and requests that fail or hang on demand. Everything else is the emulator's.

    python -m tests.servers.storage_server --host 0.0.0.0 --port 9023 --bucket runs --directory DIR
    python -m tests.servers.storage_server --fail-every 3 --fail-times 100
"""

from __future__ import annotations

import argparse
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import HTTPServer, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers.buckets import create_bucket
from gcp_storage_emulator.server import RequestHandler
from gcp_storage_emulator.storage import Storage

from tests.servers.http_server import serving

FORBIDDEN = "forbidden"
READ_ONLY = "read-only"
NO_DELETE = "no-delete"


@dataclass
class Faults:
    """The faults to inject; may be changed while the server runs.

    Attributes:
        every: every n-th request fails, 0 for none. They fail in turn in the ways of FAULTS.
        times: requests that fail at most, None for no limit.
        silent: requests wait while it is set.
        seen, failed: requests so far.
    """

    every: int = 0
    times: int | None = None
    silent: threading.Event = field(default_factory=threading.Event)
    seen: int = 0
    failed: int = 0

    def next(self) -> str:
        """Return the fault of the current request, "" for none."""
        while self.silent.is_set():
            time.sleep(0.05)
        self.seen += 1
        if not self.every or self.seen % self.every or (self.times is not None and self.failed >= self.times):
            return ""
        self.failed += 1
        return FAULTS[self.failed % len(FAULTS)]


FAULTS = ("refused", "answer is an error", "answer is lost")
"""503, not executed; executed, but 503; executed, but the connection ends without an answer."""


class Refused(Exception):
    """Makes the handler answer with an error. Args: a status and a message."""


class ConditionalStorage(Storage):  # type: ignore[misc]
    """Emulator storage with generation preconditions.

    Attributes:
        required_generation: the precondition of the current request.
        lock: held during each request, which makes check and write atomic.
    """

    required_generation: int | None = None

    def __init__(self, faults: Faults, **options: Any) -> None:
        super().__init__(**options)
        self.faults = faults
        self.lock = threading.Lock()
        self._required_by_upload: dict[str, int | None] = {}

    def _write_config_to_file(self) -> None:
        # Writes the names of all objects after each request: with thousands of objects this dominates the run time.
        if not self._use_memory_fs:
            super()._write_config_to_file()

    def create_file(self, bucket: str, name: str, content: bytes, obj: Any, file_id: str | None = None) -> None:
        if file_id in self._required_by_upload:
            self.required_generation = self._required_by_upload.pop(file_id)
        self._check(bucket, name)
        super().create_file(bucket, name, content, obj, file_id)

    def create_resumable_upload(self, bucket: str, name: str, obj: Any) -> str:
        self._check(bucket, name)
        file_id: str = super().create_resumable_upload(bucket, name, obj)
        self._required_by_upload[file_id] = self.required_generation
        return file_id

    def get_file(self, bucket: str, name: str, show_error: bool = True) -> Any:
        content = super().get_file(bucket, name, show_error)
        self._check(bucket, name)
        return content

    def delete_file(self, bucket: str, name: str) -> None:
        self._check(bucket, name)
        super().delete_file(bucket, name)

    def _check(self, bucket: str, name: str) -> None:
        if self.required_generation is None:
            return
        try:
            generation = int(self.get_file_obj(bucket, name)["generation"])
        except NotFound:
            generation = 0
        if generation != self.required_generation:
            raise Refused(412, "At least one of the pre-conditions you specified did not hold.")


class Handler(RequestHandler):  # type: ignore[misc]
    """Answers 412 and 403 in the same cases as Cloud Storage."""

    def do_GET(self) -> None:
        self._respond(super().do_GET)

    def do_POST(self) -> None:
        self._respond(super().do_POST)

    def do_PUT(self) -> None:
        self._respond(super().do_PUT)

    def do_DELETE(self) -> None:
        self._respond(super().do_DELETE)

    def _respond(self, work: Callable[[], None]) -> None:
        # Read before taking the lock and written after it: a client that stops midway must not block others.
        requested, connection = self.rfile, self.wfile
        if "Content-Length" in self.headers:
            self.rfile = io.BytesIO(requested.read(int(self.headers["Content-Length"])))
        self.wfile = io.BytesIO()
        fault = self.storage.faults.next()
        try:
            with self.storage.lock:
                if fault == "refused":
                    raise Refused(503, "Backend Error")
                self._work(work)
        except Refused as refused:
            self._refuse(*refused.args)
        response = self.wfile.getvalue()
        if fault == "answer is an error":
            self.wfile = io.BytesIO()
            self._refuse(503, "Backend Error")
            response = self.wfile.getvalue()
        self.rfile, self.wfile = requested, connection
        if fault == "answer is lost":
            self.close_connection = True
        else:
            connection.write(response)

    def _work(self, work: Callable[[], None]) -> None:
        parts = urlsplit(self.path)
        if f"/b/{FORBIDDEN}/" in parts.path:
            raise Refused(403, "ci@example.iam.gserviceaccount.com does not have storage.objects access.")
        if f"/b/{READ_ONLY}/" in parts.path and self.command != "GET":
            raise Refused(403, "ci@example.iam.gserviceaccount.com does not have storage.objects.create access.")
        if f"/b/{NO_DELETE}/" in parts.path and self.command == "DELETE":
            raise Refused(403, "ci@example.iam.gserviceaccount.com does not have storage.objects.delete access.")
        condition = parse_qs(parts.query).get("ifGenerationMatch")
        self.storage.required_generation = int(condition[0]) if condition else None
        work()

    def _refuse(self, status: int, message: str) -> None:
        content = json.dumps({"error": {"code": status, "message": message}}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def make_server(
    host: str, port: int, bucket: str, directory: str | None = None, faults: Faults | None = None
) -> HTTPServer:
    """Return a server that listens but does not serve yet; port 0 means any. In memory without a directory."""
    storage = ConditionalStorage(faults or Faults(), use_memory_fs=directory is None, data_dir=directory)
    for name in {bucket, READ_ONLY, NO_DELETE} - set(storage.buckets):
        create_bucket(name, storage)
    return ThreadingHTTPServer((host, port), partial(Handler, storage))


@contextmanager
def storage_server(bucket: str, host: str = "127.0.0.1", faults: Faults | None = None) -> Iterator[str]:
    """Serve from memory during the block; yield the URL for STORAGE_EMULATOR_HOST."""
    faults = faults or Faults()
    server = make_server(host, 0, bucket, faults=faults)
    with serving(server) as url:
        try:
            yield url
        finally:
            faults.silent.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9023)
    parser.add_argument("--bucket", default="mlgo")
    parser.add_argument("--directory")
    parser.add_argument("--fail-every", type=int, default=0)
    parser.add_argument("--fail-times", type=int)
    options = parser.parse_args()
    faults = Faults(options.fail_every, options.fail_times)
    make_server(options.host, options.port, options.bucket, options.directory, faults).serve_forever()


if __name__ == "__main__":
    main()
