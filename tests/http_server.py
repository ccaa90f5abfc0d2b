"""Web servers for tests: one serves a directory, one answers given bytes."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class _QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: object) -> None:
        pass


@contextmanager
def serve(directory: Path) -> Iterator[str]:
    """Serve the directory's files; yield the URL without a trailing slash."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_QuietHandler, directory=str(directory))) as server:
        yield from _serving(server)


class RawServer(socketserver.ThreadingTCPServer):
    """Answers each connection with the bytes `answer` and closes it; if None, accepts and never answers."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        self.answer: bytes | None = b""
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
            if server.answer is None:
                server.ended.wait(30)
            else:
                self.request.sendall(server.answer)
        except OSError:
            pass


@contextmanager
def raw_server() -> Iterator[RawServer]:
    with RawServer() as server:
        for _url in _serving(server):
            try:
                yield server
            finally:
                server.ended.set()


def _serving(server: socketserver.TCPServer) -> Iterator[str]:
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.02), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
