"""A server that records requests and answers by a function, and a state with deployed policies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from components.core.storage import publish
from components.evaluation.report.model_card import MARKDOWN
from pipelines.retrain.state import Deployed

Answer = tuple[int, dict[str, Any]]


@dataclass
class Request:
    """A request. body: None without one."""

    method: str
    path: str
    body: Any
    headers: dict[str, str]


@dataclass
class RecordingServer:
    """The requests so far, and the server's URL."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)

    def sent(self, method: str) -> list[Request]:
        return [request for request in self.requests if request.method == method]


@contextmanager
def recording_server(answer: Callable[[Request], Answer]) -> Iterator[RecordingServer]:
    """Serve on a free port; `answer` returns status and document."""
    record = RecordingServer()

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            request = Request(self.command, self.path, body, dict(self.headers))
            record.requests.append(request)
            status, document = answer(request)
            content = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PATCH = _handle

        def log_message(self, *_arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        record.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield record
        finally:
            server.shutdown()
            thread.join()


def check_fields(value: Any, kind: Any, messages: dict[str, dict[str, Any]]) -> None:
    """Raise ValueError unless `value` fits a type: a Python type, [type], {str: type}, or the name of a message."""
    if isinstance(kind, list):
        for item in value:
            check_fields(item, kind[0], messages)
    elif isinstance(kind, dict):
        for item in value.values():
            check_fields(item, kind[str], messages)
    elif isinstance(kind, type):
        if not isinstance(value, kind):
            raise ValueError(f"{value!r} is no {kind.__name__}")
    else:
        for key, item in value.items():
            if key not in messages[kind]:
                raise ValueError(f"{kind} has no field {key}")
            check_fields(item, messages[kind][key], messages)


@pytest.fixture
def deployed(tmp_path: Path) -> Callable[..., Deployed]:
    """Return a function that returns a deployed policy with a digest, and an evaluation with a model card."""
    with publish(tmp_path / "evaluation") as directory:
        (directory / MARKDOWN).write_text("# Policy\n\nSmaller than -Oz.\n")

    def make(digit: str, **more: Any) -> Deployed:
        given = {
            "policy": f"gs://bucket/runs/{digit}/policy",
            "policy_digest": digit * 64,
            "problem": "inlining",
            "llvm_version": "19.1.7",
            "features": ("a",),
            "modules": {"m": "x"},
            "reduction_percent": 4.25,
            "ci95": (3.5, 5.0),
            "promoted_at": 86400.0,
            "run": f"gs://bucket/runs/{digit}",
            "better_percent": 0.75,
            "promoted_by": "me@host",
            "reason": "it is smaller",
            "corpus_digest": "c" * 64,
            "evaluation": str(tmp_path / "evaluation"),
        }
        return Deployed(**{**given, **more})

    return make
