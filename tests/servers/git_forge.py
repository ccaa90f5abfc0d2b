"""GitHub's and GitLab's APIs for the statuses of a commit, as far as both document them.

https://docs.github.com/rest/commits/statuses#create-a-commit-status, and "Set commit pipeline status" of
https://docs.gitlab.com/api/commits. Refusals have the status and the message that the services answer with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import ThreadingHTTPServer
from typing import Any

from tests.servers.http_server import JsonHandler, serving

SHA = "6dcb09b5b57875f334f61aebed695e2e4193db5e"
TOKEN = "t0ken"
_GITHUB_FIELDS = {"state", "target_url", "description", "context"}
_GITLAB_FIELDS = {"state", "ref", "name", "context", "target_url", "description", "coverage", "pipeline_id"}


@dataclass
class Forge:
    """What the server has received.

    Attributes:
        statuses: path and body of each status that was accepted.
        headers: of each of them.
        busy: number of requests that are answered with 503 first.
    """

    url: str = ""
    statuses: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    busy: int = 0

    @property
    def github_commit(self) -> str:
        return f"{self.url}/repos/octo/hello/commits/{SHA}"

    @property
    def gitlab_commit(self) -> str:
        return f"{self.url}/api/v4/projects/17/repository/commits/{SHA}"


@contextmanager
def git_forge() -> Iterator[Forge]:
    """Serve both APIs during the block."""
    forge = Forge()

    class Handler(JsonHandler):
        def do_POST(self) -> None:
            body, github = self.read_json(), self.path.startswith("/repos/")
            status, message = _judge(self.path, self.headers, body) if not forge.busy else (503, "busy")
            forge.busy -= forge.busy > 0
            if status == 201:
                forge.statuses.append((self.path, body))
                forge.headers.append(dict(self.headers))
            self.send_json(
                {"id": 1, "state" if github else "status": message} if status == 201 else {"message": message}, status
            )

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as forge.url:
        yield forge


def _judge(path: str, headers: Message, body: Any) -> tuple[int, str]:
    """Return the status and the message, or the state, of the answer."""
    if headers.get("Content-Type") != "application/json":
        return 415, "the body is not JSON"
    if path == f"/repos/octo/hello/statuses/{SHA}":
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            return 401, "Bad credentials"
        if not headers.get("User-Agent"):
            return 403, "Request forbidden by administrative rules."
        if headers.get("X-GitHub-Api-Version") != "2022-11-28":
            return 400, "unknown version"
        if set(body) - _GITHUB_FIELDS or body["state"] not in ("error", "failure", "pending", "success"):
            return 422, "Validation Failed"
        if len(body.get("description") or "") > 140:
            return 422, "Validation failed: description is too long (maximum is 140 characters)"
        return 201, body["state"]
    if path == f"/api/v4/projects/17/statuses/{SHA}":
        if headers.get("PRIVATE-TOKEN") != TOKEN:
            return 401, "401 Unauthorized"
        states = ("pending", "running", "success", "failed", "canceled", "skipped")
        if set(body) - _GITLAB_FIELDS or body["state"] not in states:
            return 400, "state does not have a valid value"
        if len(body.get("target_url") or "") > 255 or len(body.get("description") or "") > 255:
            return 400, "is too long (maximum is 255 characters)"
        return 201, body["state"]
    return 404, "Not Found"
