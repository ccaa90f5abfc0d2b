"""Refused connections to a Ray cluster: the message has a remedy and not the token."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from components.platform.errors import UserError
from components.platform.workers.ray_cluster import connect

TOKEN = "5ec4e7" * 8


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("AuthenticationError: the token is missing or invalid\nmore words", "RAY_AUTH_TOKEN_PATH=FILE"),
        ("Version mismatch: the cluster was started with Ray 2.1", "the same Ray and Python"),
        ("could not connect", "check the address"),
    ],
)
def test_refusing_cluster_is_reported_with_remedy_without_token(
    said: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**options: Any) -> None:
        assert TOKEN not in repr(options), "Ray reads it itself"
        raise RuntimeError(said)

    exceptions = SimpleNamespace(RayError=type("RayError", (Exception,), {}))
    fake = SimpleNamespace(is_initialized=lambda: False, init=init, exceptions=exceptions)
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    with pytest.raises(UserError) as error:
        connect("head:6379", None)
    assert remedy in error.value.remedy and said.splitlines()[0] in error.value.problem
    assert TOKEN not in str(error.value) and error.value.__suppress_context__
