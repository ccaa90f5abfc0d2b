"""Pushed images and the command, for tests of submissions."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.commands import run_command

ROOT = Path(__file__).parents[3]
Mlgo = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def last_request(host: str) -> Callable[[str], dict[str, Any]]:
    """Return a function that returns the last request to a route of the fake server."""

    def last(route: str) -> dict[str, Any]:
        return [
            request for request in requests.get(f"{host}/requests", timeout=10).json() if request["route"] == route
        ][-1]

    return last


@pytest.fixture
def mlgo(monkeypatch: pytest.MonkeyPatch) -> Mlgo:
    """Return a function that runs `mlgo pipeline ...`, with frequent polls and without a token of the environment."""
    monkeypatch.setenv("MLGO_POLL_S", "0.1")
    monkeypatch.delenv("KFP_TOKEN", raising=False)

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        return run_command("pipelines", "pipeline", *arguments, cwd=ROOT)

    return run


@pytest.fixture
def submit(mlgo: Mlgo, images: Path) -> Mlgo:
    """Return a function that runs `mlgo pipeline submit` with `images`."""
    return lambda *arguments: mlgo("submit", "--images", images, *arguments)
