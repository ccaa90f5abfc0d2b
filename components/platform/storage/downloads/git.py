"""Runs git commands that fetch: without questions, with a time limit, repeated if the network or the server fails."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from components.platform.console import say, say_if_slow
from components.platform.errors import UserError
from components.platform.storage.downloads.retry import PassingFailure, Say, retry_briefly

TIMEOUT_S = 1800.0
LIST_TIMEOUT_S = 60.0
_PASSING_MESSAGES = (
    "Could not resolve host",
    "Couldn't connect",
    "Failed to connect",
    "Connection reset",
    "Connection refused",
    "Connection timed out",
    "Recv failure",
    "Empty reply",
    "early EOF",
    "hung up unexpectedly",
    "RPC failed",
    "TLS connection was non-properly terminated",
    "returned error: 408",
    "returned error: 429",
    "returned error: 5",
)
"""Of git and libcurl, about failures that the same command may not meet later."""


def require_git(purpose: str) -> None:
    """Raise UserError if git is not installed."""
    if shutil.which("git") is None:
        raise UserError(f"git is missing, {purpose}", "sudo apt-get install git")


def remote_commit(url: str, name: str, progress: Say = say) -> str:
    """Return the commit (hex) that a branch or tag of a repository points to now; a branch comes first, as in clones.

    Raises:
        UserError: git is not installed, the repository cannot be read, or has no such branch or tag.
    """
    require_git(f"it reads {url}")
    task, remedy = f"read which commit {name} of {url} is", "check the URL, the tag and the network"
    tag = f"refs/tags/{name}"
    names = (f"refs/heads/{name}", f"{tag}^{{}}", tag)  # of an annotated tag the commit, not the tag's own object
    listed = run_git(["ls-remote", "--", url, *names], task, remedy, progress, timeout_s=LIST_TIMEOUT_S)
    commits = {ref: commit for commit, _tab, ref in (line.partition("\t") for line in listed.splitlines())}
    for ref in names:
        if ref in commits:
            return commits[ref]
    raise UserError(f"cannot {task}: there is no such branch or tag", remedy)


def run_git(
    arguments: Sequence[str],
    task: str,
    remedy: str,
    progress: Say = say,
    clone: Path | None = None,
    timeout_s: float | None = None,
) -> str:
    """Run `git ARGUMENTS` and return what it prints. UserError if it failed, or took too long.

    Args:
        task: what the command does, for messages: "clone URL at v1.2".
        clone: the directory that the command makes. It is removed after a failure: git keeps it if a submodule failed,
            and refuses it at the next attempt.
        timeout_s: None means TIMEOUT_S.
    """
    limit_s = TIMEOUT_S if timeout_s is None else timeout_s
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}

    def attempt() -> str:
        try:
            return run()
        except UserError:
            if clone is not None:
                shutil.rmtree(clone, ignore_errors=True)
            raise

    def run() -> str:
        try:
            with say_if_slow(f"waiting for git to {task} (at most {limit_s:.0f} s)"):
                done = subprocess.run(
                    ["git", *arguments],
                    env=environment,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    stdin=subprocess.DEVNULL,
                    timeout=limit_s,
                )
        except subprocess.TimeoutExpired:
            problem = f"git could not {task} within {limit_s:.0f} s"
            raise UserError(problem, "check the URL and the network") from None
        if done.returncode != 0:
            kind = PassingFailure if any(words in done.stderr for words in _PASSING_MESSAGES) else UserError
            raise kind(f"cannot {task}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}", remedy)
        return done.stdout

    return retry_briefly(attempt, progress)
