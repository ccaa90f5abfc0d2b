"""A proxy between the project and a storage server that spoils a share of what passes.

refused     503, and the request does not reach the server
dropped     the connection ends, and the request does not reach the server
error       the server does it, and the answer is 503
lost        the server does it, and the connection ends without an answer
cut         the server does it, and the connection ends amid the answer
slow        the answer takes a second
"""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

FAULTS = ("refused", "dropped", "error", "lost", "cut", "slow")
_HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length"}


@dataclass
class Spoiling:
    """What the proxy does.

    Attributes:
        share: of the requests that are spoilt, 0 to 1.
        passed: requests so far; done: fault -> how often.
    """

    share: float
    random: random.Random
    passed: int = 0
    done: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self) -> str:
        """The fault of the request at hand, "" for none."""
        with self._lock:
            self.passed += 1
            if self.random.random() >= self.share:
                return ""
            fault = self.random.choice(FAULTS)
            self.done[fault] += 1
            return fault


@contextmanager
def spoiling_proxy(target: str, spoiling: Spoiling) -> Iterator[str]:
    """Serve in front of the URL `target` while the block runs; yield the URL of the proxy."""
    server = urlsplit(target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def log_message(self, *_arguments: object) -> None:
            pass

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            fault = spoiling.next()
            if fault == "dropped":
                self.close_connection = True
                return
            if fault == "refused":
                self._answer(503, [], b"spoilt")
                return
            connection = http.client.HTTPConnection(str(server.hostname), server.port, timeout=60)
            try:
                headers = {key: value for key, value in self.headers.items() if key.lower() not in _HOP_BY_HOP}
                connection.request(self.command, self.path, body, headers)
                answer = connection.getresponse()
                content = answer.read()
            finally:
                connection.close()
            if fault == "lost":
                self.close_connection = True
            elif fault == "error":
                self._answer(503, [], b"spoilt")
            else:
                if fault == "slow":
                    time.sleep(1)
                self._answer(answer.status, answer.getheaders(), content, cut=fault == "cut")

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _pass_on

        def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes, cut: bool = False) -> None:
            self.send_response_only(status)
            for key, value in headers:
                if key.lower() not in _HOP_BY_HOP:
                    self.send_header(key, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if cut else content)
            self.close_connection |= cut

    class Proxy(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_arguments: object) -> None:
            """Say nothing: clients that are killed break their connections."""

    proxy = Proxy(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{proxy.server_port}"
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()
