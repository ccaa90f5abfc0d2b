"""The status of a commit, sent to servers that answer as GitHub and GitLab do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.platform.errors import UserError
from components.platform.launcher import commit_status
from components.platform.launcher.commit_status import (
    COMMIT_VARIABLE,
    CONTEXT_VARIABLE,
    SECRET_VARIABLE,
    TOKEN_VARIABLE,
    commit_of_ci,
    require_commit,
    set_commit_status,
)
from components.platform.storage.downloads import retry
from tests.servers.git_forge import SHA, TOKEN, Forge, git_forge

PAGE = "https://kfp.example.com/#/runs/details/run-1"


@pytest.fixture
def forge(monkeypatch: pytest.MonkeyPatch) -> Iterator[Forge]:
    monkeypatch.setattr(retry, "PAUSES_S", (0.01, 0.01))
    monkeypatch.setenv(TOKEN_VARIABLE, f"{TOKEN}\n")
    monkeypatch.delenv(CONTEXT_VARIABLE, raising=False)
    with git_forge() as server:
        yield server


@pytest.mark.parametrize(
    ("state", "github", "gitlab"),
    [
        ("SUCCEEDED", "success", "success"),
        ("FAILED", "failure", "failed"),
        ("CANCELED", "error", "canceled"),
        ("UNKNOWN", "error", "failed"),
    ],
)
def test_each_end_is_a_state_of_the_service(
    state: commit_status.State, github: str, gitlab: str, forge: Forge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COMMIT_VARIABLE, forge.github_commit)
    monkeypatch.setenv(CONTEXT_VARIABLE, "sizes")
    said = set_commit_status(state, "better: 1.20%\nsmaller", PAGE)
    assert said == f"GitHub: the commit {SHA[:12]} has the status {github}: better: 1.20% smaller"
    monkeypatch.setenv(COMMIT_VARIABLE, forge.gitlab_commit)
    assert f"has the status {gitlab}: " in set_commit_status(state, "better", PAGE)
    assert forge.statuses == [
        (
            f"/repos/octo/hello/statuses/{SHA}",
            {"state": github, "context": "sizes", "description": "better: 1.20% smaller", "target_url": PAGE},
        ),
        (
            f"/api/v4/projects/17/statuses/{SHA}",
            {"state": gitlab, "name": "sizes", "description": "better", "target_url": PAGE},
        ),
    ]
    assert forge.headers[0]["Accept"] == "application/vnd.github+json" and "Authorization" not in forge.headers[1]


def test_texts_are_as_long_as_the_service_takes(forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    long_page = "https://kfp/" + "x" * 250
    for commit in (forge.github_commit, forge.gitlab_commit):
        monkeypatch.setenv(COMMIT_VARIABLE, commit)
        set_commit_status("SUCCEEDED", "y" * 300, long_page)
    github, gitlab = (body for _path, body in forge.statuses)
    assert github["description"] == "y" * 139 + "…" and github["target_url"] == long_page
    assert gitlab["description"] == "y" * 254 + "…" and "target_url" not in gitlab and gitlab["name"] == "mlgo"


def test_busy_service_is_asked_again(forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMMIT_VARIABLE, forge.github_commit)
    forge.busy = 2
    set_commit_status("SUCCEEDED", "better", "")
    assert len(forge.statuses) == 1
    forge.busy = 3
    with pytest.raises(UserError, match=f"GitHub gives the commit {SHA[:12]} no status: 503 busy"):
        set_commit_status("SUCCEEDED", "better", "")


def test_refusals_name_the_remedy_and_no_token(forge: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMMIT_VARIABLE, forge.github_commit)
    monkeypatch.setenv(TOKEN_VARIABLE, "s3cret")
    for commit, problem, right in (
        (forge.github_commit, "401 Bad credentials", "commit statuses: write"),
        (forge.gitlab_commit, "401 401 Unauthorized", "scope api"),
        (forge.github_commit.replace("hello", "other"), "404 Not Found", "check the commit"),
        ("http://127.0.0.1:1/repos/a/b/commits/" + SHA, "GitHub's API does not answer", "network"),
    ):
        monkeypatch.setenv(COMMIT_VARIABLE, commit)
        with pytest.raises(UserError) as refused:
            set_commit_status("SUCCEEDED", "better", PAGE)
        assert problem in refused.value.problem and right in refused.value.remedy
        assert "s3cret" not in str(refused.value)
    monkeypatch.setenv(TOKEN_VARIABLE, "two s3cret\nwords")
    with pytest.raises(UserError, match="MLGO_COMMIT_TOKEN is not one token") as refused:
        set_commit_status("SUCCEEDED", "better", PAGE)
    assert "s3cret" not in str(refused.value) and not forge.statuses


def test_missing_secret_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMMIT_VARIABLE, f"https://api.github.com/repos/a/b/commits/{SHA}")
    monkeypatch.setenv(SECRET_VARIABLE, "mlgo-commit")
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with pytest.raises(UserError, match="there is no Secret mlgo-commit with the key token") as refused:
        set_commit_status("SUCCEEDED", "better", PAGE)
    assert "--from-file token=FILE" in refused.value.remedy


def test_commit_of_the_ci_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    variables = ("GITHUB_API_URL", "GITHUB_REPOSITORY", "GITHUB_SHA", "CI_API_V4_URL", "CI_PROJECT_ID", "CI_COMMIT_SHA")
    for name in (*variables, "GITHUB_EVENT_PATH", "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA"):
        monkeypatch.delenv(name, raising=False)
    assert commit_of_ci() == ""
    for name, value in zip(variables[3:], ("https://git.example.com/gitlab/api/v4", "17", SHA), strict=True):
        monkeypatch.setenv(name, value)
    gitlab = f"https://git.example.com/gitlab/api/v4/projects/17/repository/commits/{SHA}"
    assert commit_of_ci() == gitlab
    for name, value in zip(variables[:3], ("https://api.github.com", "octo/hello", SHA), strict=True):
        monkeypatch.setenv(name, value)
    assert commit_of_ci() == f"https://api.github.com/repos/octo/hello/commits/{SHA}"
    require_commit(gitlab)
    require_commit(commit_of_ci())
    # Both build a trial merge of a pull request, which it does not show.
    event, head = tmp_path / "event.json", "b" * 40
    event.write_text(json.dumps({"pull_request": {"head": {"sha": head}}}))
    monkeypatch.setenv("GITHUB_EVENT_PATH", str(event))
    assert commit_of_ci().endswith(f"/commits/{head}")
    event.write_text("[]")
    assert commit_of_ci().endswith(f"/commits/{SHA}")
    monkeypatch.delenv("GITHUB_SHA")
    monkeypatch.setenv("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA", head)
    assert commit_of_ci().endswith(f"/repository/commits/{head}")


@pytest.mark.parametrize(
    "url",
    [
        f"https://github.com/octo/hello/commit/{SHA}",
        "https://api.github.com/repos/octo/hello/commits/main",
        f"https://api.github.com/repos/octo/hello/commits/{SHA}?x",
        f"ftp://h/repos/octo/hello/commits/{SHA}",
        f"https://h/projects/a/b/repository/commits/{SHA}",
        "",
    ],
)
def test_other_url_is_refused(url: str) -> None:
    with pytest.raises(UserError, match="is no commit in GitHub's or GitLab's API"):
        require_commit(url)
