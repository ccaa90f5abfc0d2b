"""Tests that run the scripts of the examples that comment a change with the sizes of its programs, on a small one."""

from __future__ import annotations

import os
import subprocess
import sys
from http.server import ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from tests.servers.http_server import JsonHandler, serving
from tests.support.workflow_problems import problems
from tests.support.workflows import ROOT, filled, load, steps

EXAMPLES = ROOT / "docs" / "examples"
COMMITTER = {f"GIT_{role}_{what}": "a@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


@pytest.fixture
def project(tmp_path: Path) -> tuple[Path, str]:
    """Return a checkout whose last commit makes a function larger, and the commit before it."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()

    def git(*arguments: str) -> str:
        environment = os.environ | COMMITTER
        done = subprocess.run(
            ["git", *arguments], cwd=checkout, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git("init", "--quiet")
    (checkout / "Makefile").write_text("app: app.c\n\t$(CC) -O2 -o $@ $<\n")
    for body in ("return n;", "for (int i = 0; i < n; i++) n ^= n * i; return n / 7;"):
        (checkout / "app.c").write_text(
            f"int work(int n) {{ {body} }}\nint main(int n, char **v) {{ return work(n); }}\n"
        )
        git("add", ".")
        git("commit", "--quiet", "--message", body)
    return checkout, git("rev-parse", "HEAD~1")


def environment(directory: Path, **variables: str) -> dict[str, str]:
    """Return one in which `mlgo` is this checkout's, and what a machine of a CI installs is there."""
    programs = directory / "programs"
    programs.mkdir()
    (programs / "mlgo").write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m pipelines "$@"\n')
    for name in ("pipx", "apt-get"):
        (programs / name).write_text("#!/bin/sh\n")
    (programs / "gh").write_text('#!/bin/sh\necho "$@" >arguments\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(directory), **variables}


def table_of(text: str) -> None:
    assert text.startswith("```\n") and text.endswith("```\n")
    assert "app" in text and "work" in text and "% larger" in text


def test_github_comments_a_pull_request(project: tuple[Path, str], tmp_path: Path) -> None:
    checkout, base = project
    values = {
        "github.event.pull_request.base.sha": base,
        "github.event.pull_request.html_url": "https://example.com/pull/7",
        "github.token": "t",
    }
    assert problems(EXAMPLES / "size.github.yml") == []
    workflow = load(EXAMPLES / "size.github.yml")
    summary = tmp_path / "summary"
    machine = environment(tmp_path, GITHUB_STEP_SUMMARY=str(summary))
    for step in steps(workflow):
        variables = {name: filled(text, values) for name, text in step.variables.items()}
        subprocess.run(
            ["bash", "-e", "-c", step.script], cwd=checkout, env=machine | variables, check=True, timeout=120
        )
    table_of(summary.read_text())
    assert (checkout / "arguments").read_text().split()[:3] == ["pr", "comment", "https://example.com/pull/7"]
    table_of((checkout / "size.md").read_text())


@pytest.mark.parametrize("token", ["", "secret"])
def test_gitlab_comments_a_merge_request(project: tuple[Path, str], tmp_path: Path, token: str) -> None:
    checkout, base = project
    notes: list[tuple[str, str | None, str]] = []

    class Handler(JsonHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            notes.append((self.path, self.headers["PRIVATE-TOKEN"], parse_qs(body)["body"][0]))
            self.send_json({}, 201)

    job = load(EXAMPLES / "size.gitlab-ci.yml")["size"]
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as url:
        machine = environment(
            tmp_path,
            CI_MERGE_REQUEST_DIFF_BASE_SHA=base,
            CI_API_V4_URL=url,
            CI_PROJECT_ID="3",
            CI_MERGE_REQUEST_IID="7",
            MLGO_TOKEN=token,
        )
        script = "\n".join(job["script"])
        machine |= job["variables"]
        subprocess.run(["bash", "-e", "-c", script], cwd=checkout, env=machine, check=True, timeout=120)
    assert [(path, given) for path, given, _body in notes] == (
        [("/projects/3/merge_requests/7/notes", "secret")] if token else []
    )
    for _path, _given, body in notes:
        table_of(body)
    table_of((checkout / "size.md").read_text())
