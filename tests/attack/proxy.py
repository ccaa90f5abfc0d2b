"""A proxy in front of a storage server that injects faults into a share of the requests.

refused     503; the request does not reach the server
dropped     the connection ends; the request does not reach the server
error       the server executes the request, the answer is 503
lost        the server executes the request, the connection ends without an answer
cut         the server executes the request, the connection ends in the middle of the answer
slow        the answer is delayed by a second
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

from tests.servers.http_server import serving

FAULTS = ("refused", "dropped", "error", "lost", "cut", "slow")
_HOP_BY_HOP = {"connection", "transfer-encoding", "keep-alive", "content-length"}


@dataclass
class Spoiling:
    """Configuration and statistics of the proxy.

    Attributes:
        share: fraction of the requests with a fault, 0 to 1.
        random: chooses the requests and faults.
        passed: requests so far.
        done: fault -> count.
    """

    share: float
    random: random.Random
    passed: int = 0
    done: Counter[str] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self) -> str:
        """Return the fault of the current request, "" for none."""
        with self._lock:
            self.passed += 1
            if self.random.random() >= self.share:
                return ""
            fault = self.random.choice(FAULTS)
            self.done[fault] += 1
            return fault


@contextmanager
def spoiling_proxy(target: str, spoiling: Spoiling) -> Iterator[str]:
    """Serve in front of the URL `target` during the block; yield the URL of the proxy."""
    server = urlsplit(target)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def log_message(self, *_arguments: object) -> None:
            pass

        def _forward(self) -> None:
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

        do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = _forward

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
            """Print nothing: killed clients break their connections."""

    with serving(Proxy(("127.0.0.1", 0), Handler)) as url:
        yield url
