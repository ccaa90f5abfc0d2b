"""A server that records requests and responds by a function, and a state with deployed policies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from components.evaluation.report.model_card import MARKDOWN
from components.platform.storage import publish
from pipelines.retrain.state import Deployed
from tests.servers.http_server import JsonHandler, serving

Response = tuple[int, dict[str, Any]]


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
def recording_server(respond: Callable[[Request], Response]) -> Iterator[RecordingServer]:
    """Serve on a free port; `respond` returns status and document."""
    record = RecordingServer()

    class Handler(JsonHandler):
        def _handle(self) -> None:
            request = Request(self.command, self.path, self.read_json(), dict(self.headers))
            record.requests.append(request)
            status, document = respond(request)
            self.send_json(document, status)

        do_GET = do_POST = do_PATCH = _handle

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as record.url:
        yield record


@pytest.fixture
def deployed(tmp_path: Path) -> Callable[..., Deployed]:
    """Return a function that returns a deployed policy with a digest, and an evaluation with a model card."""
    with publish(tmp_path / "evaluation", "evaluation") as directory:
        (directory / MARKDOWN).write_text("# Policy\n\nSmaller than -Oz.\n")

    def make(digit: str, **more: Any) -> Deployed:
        fields = {
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
        return Deployed(**{**fields, **more})

    return make
