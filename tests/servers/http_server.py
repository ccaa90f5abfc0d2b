"""Web servers for tests: one serves a directory, one answers given bytes; and what others need to answer in JSON."""

from __future__ import annotations

import json
import socketserver
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


@contextmanager
def serving(server: socketserver.TCPServer) -> Iterator[str]:
    """Serve in a thread during the block, and close the server; yield its URL without a trailing slash."""
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.02))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class JsonHandler(BaseHTTPRequestHandler):
    """Reads and answers JSON, and logs nothing."""

    def read_json(self) -> Any:
        """Return the request's body, None without one."""
        length = int(self.headers.get("Content-Length") or 0)
        return json.loads(self.rfile.read(length)) if length else None

    def send_json(self, document: Any, status: int = 200) -> None:
        self.send(json.dumps(document).encode(), "application/json", status)

    def send(self, content: bytes, kind: str, status: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_arguments: object) -> None:
        pass


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        pass


@contextmanager
def serve(directory: Path) -> Iterator[str]:
    """Serve the directory's files; yield the URL without a trailing slash."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietHandler, directory=str(directory)))
    with serving(server) as url:
        yield url


class OverloadedServer(ThreadingHTTPServer):
    """Answers requests with `statuses` in turn, 0 to cut the body off, then with `content`; stops in it for a time."""

    def __init__(self, content: bytes = b"", statuses: Sequence[int] = (), stops_s: float = 0.0) -> None:
        self.content, self.statuses, self.stops_s = content, list(statuses), stops_s
        self.requests: list[str] = []
        super().__init__(("127.0.0.1", 0), _OverloadedHandler)
        self.url = f"http://127.0.0.1:{self.server_port}"


class _OverloadedHandler(JsonHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, OverloadedServer)
        server.requests.append(self.path)
        status = server.statuses.pop(0) if server.statuses else 200
        self.send_response(status or 200)
        self.send_header("Content-Length", str(len(server.content)))
        self.end_headers()
        self.wfile.write(server.content[:20])
        time.sleep(server.stops_s)
        self.wfile.write(server.content[20:] if status else b"")


class RawServer(socketserver.ThreadingTCPServer):
    """Answers each connection with the bytes `answer` and closes it; if None, accepts and never answers."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        self.response: bytes | None = b""
        self.ended = threading.Event()
        super().__init__(("127.0.0.1", 0), _RawHandler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _RawHandler(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        server = self.server
        assert isinstance(server, RawServer)
        self.request.settimeout(5)
        try:
            self.request.recv(65536)
            if server.response is None:
                server.ended.wait(30)
            else:
                self.request.sendall(server.response)
        except OSError:
            pass


@contextmanager
def raw_server() -> Iterator[RawServer]:
    server = RawServer()
    with serving(server):
        try:
            yield server
        finally:
            server.ended.set()
