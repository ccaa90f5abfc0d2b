"""Sets the status of a commit when the run ends that CI started for it, by GitHub's or GitLab's API.

https://docs.github.com/rest/commits/statuses and https://docs.gitlab.com/api/commits, "Set commit pipeline status".
The token comes from the environment and never goes into a log or an error.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from components.platform.errors import UserError
from components.platform.launcher.json_request import read_token, request_json
from components.platform.storage.downloads.retry import PassingFailure, may_recover, retry_briefly

COMMIT_VARIABLE = "MLGO_COMMIT"
"""Environment variable with the commit's URL in the API."""
CONTEXT_VARIABLE = "MLGO_COMMIT_CONTEXT"
"""Environment variable with the name that tells this status from others of the commit."""
TOKEN_VARIABLE = "MLGO_COMMIT_TOKEN"
"""Environment variable with the token; on a cluster a Kubernetes Secret fills it."""
SECRET_VARIABLE = "MLGO_COMMIT_SECRET"
"""Environment variable with the name of the Secret that fills TOKEN_VARIABLE, if it exists."""
_CONTEXT = "mlgo"
_URL = re.compile(
    r"(?P<api>https?://[^?#]+)/"
    r"(?:(?P<github>repos/[^/?#]+/[^/?#]+)/commits|(?P<gitlab>projects/[^/?#]+)/repository/commits)"
    r"/(?P<sha>[0-9a-f]{40}|[0-9a-f]{64})"
)
EXAMPLES = (
    "https://api.github.com/repos/OWNER/NAME/commits/SHA or https://HOST/api/v4/projects/ID/repository/commits/SHA"
)
State = Literal["SUCCEEDED", "FAILED", "CANCELED", "UNKNOWN"]


@dataclass(frozen=True)
class _Forge:
    """Where commits are, and how its API names things.

    Attributes:
        states: state of a run -> state of a commit.
        context: field with the name of a status.
        max_text: limit of the description.
        max_url: limit of the target's URL.
        headers: of a request with a token.
    """

    name: str
    states: Mapping[str, str]
    context: str
    max_text: int
    max_url: int
    headers: Callable[[str], dict[str, str]]


_GITHUB = _Forge(
    "GitHub",
    {"SUCCEEDED": "success", "FAILED": "failure", "CANCELED": "error", "UNKNOWN": "error"},
    "context",
    140,
    10_000,
    lambda token: {
        "Accept": "application/vnd.github+json",
        "Authorization": f"Bearer {token}",
        "X-GitHub-Api-Version": "2022-11-28",
    },
)
_GITLAB = _Forge(
    "GitLab",
    {"SUCCEEDED": "success", "FAILED": "failed", "CANCELED": "canceled", "UNKNOWN": "failed"},
    "name",
    255,
    255,
    lambda token: {"PRIVATE-TOKEN": token},
)


def commit_of_ci() -> str:
    """Return the URL, in the API, of the commit that this job of GitHub or GitLab CI/CD builds; "" elsewhere."""
    api, repository, sha = map(os.environ.get, ("GITHUB_API_URL", "GITHUB_REPOSITORY", "GITHUB_SHA"))
    if api and repository and sha:
        return f"{api}/repos/{repository}/commits/{_head_of_pull_request() or sha}"
    api, project, sha = map(os.environ.get, ("CI_API_V4_URL", "CI_PROJECT_ID", "CI_COMMIT_SHA"))
    sha = os.environ.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or sha  # empty but in pipelines of merged results
    return f"{api}/projects/{project}/repository/commits/{sha}" if api and project and sha else ""


def _head_of_pull_request() -> str:
    """Return the commit that a pull request shows, "" without one: GITHUB_SHA is that of a trial merge."""
    try:
        event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_bytes())
        return str(event["pull_request"]["head"]["sha"])
    except (LookupError, TypeError, OSError, ValueError):
        return ""


def require_commit(url: str) -> None:
    """Raise UserError unless `url` is that of a commit in GitHub's or GitLab's API."""
    _parse(url, "--commit")


def _parse(url: str, source: str) -> tuple[_Forge, str, str]:
    """Return the service, the URL of the commit's statuses, and the SHA's beginning. UserError if it is none."""
    match = _URL.fullmatch(url)
    if match is None:
        raise UserError(f"{source} {url!r} is no commit in GitHub's or GitLab's API", f"for example {EXAMPLES}")
    forge, project = (_GITHUB, match["github"]) if match["github"] else (_GITLAB, match["gitlab"])
    return forge, f"{match['api']}/{project}/statuses/{match['sha']}", match["sha"][:12]


def is_wanted() -> bool:
    """Return whether the environment names a commit."""
    return bool(os.environ.get(COMMIT_VARIABLE))


def set_commit_status(state: State, text: str, page: str) -> str:
    """Set the status of the commit in $MLGO_COMMIT, and return a line that says so.

    Args:
        state: how the run ended.
        text: what to say of it; cut to what the service takes.
        page: URL of the run's page, which has the report; "" for none.

    Raises:
        UserError: a Secret should have the token and does not, or the service refuses or does not answer.
    """
    forge, url, sha = _parse(os.environ.get(COMMIT_VARIABLE, ""), f"${COMMIT_VARIABLE}")
    if not (token := read_token(TOKEN_VARIABLE)):
        secret = os.environ.get(SECRET_VARIABLE, "NAME")
        raise UserError(
            f"the commit {sha} gets no status: in the namespace of the steps there is no Secret {secret} with the key "
            "token",
            f"kubectl create secret generic {secret} --namespace NAMESPACE --from-file token=FILE",
        )
    body = {
        "state": forge.states[state],
        forge.context: os.environ.get(CONTEXT_VARIABLE) or _CONTEXT,
        "description": _shorten(text, forge.max_text),
        **({"target_url": page} if page and len(page) <= forge.max_url else {}),
    }
    retry_briefly(partial(_post, forge, url, sha, token, body))
    return f"{forge.name}: the commit {sha} has the status {body['state']}: {body['description']}"


def _post(forge: _Forge, url: str, sha: str, token: str, body: Mapping[str, str]) -> None:
    def log_in(request: Any) -> Any:
        request.headers.update(forge.headers(token))
        return request

    answer = request_json("POST", url, f"{forge.name}'s API", log_in, json=body)
    if 200 <= answer.status < 300:
        return
    problem = f"{forge.name} gives the commit {sha} no status: {answer.status} {answer.message()}".strip()
    if may_recover(answer.status):
        raise PassingFailure(problem, f"see the state of {forge.name}")
    right = "commit statuses: write" if forge is _GITHUB else "scope api, role Developer"
    raise UserError(problem, f"check the commit, and that the token in the Secret has the right to it ({right})")


def _shorten(text: str, limit: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
