"""Connections to Ray: the code that its workers import; refused ones, whose message has a remedy and not the token."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from components.platform.errors import UserError
from components.platform.processes.python_module import ROOT
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
    jobs = SimpleNamespace(JobConfig=dict)
    fake = SimpleNamespace(is_initialized=lambda: False, init=init, exceptions=exceptions, job_config=jobs)
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN)
    with pytest.raises(UserError) as error:
        connect("head:6379", None)
    assert remedy in error.value.remedy and said.splitlines()[0] in error.value.problem
    assert TOKEN not in str(error.value) and error.value.__suppress_context__


COMPILE = """
import sys
sys.path.insert(0, sys.argv[1])
from components.platform.workers.ray_pool import RayPool
with RayPool(slots=1) as pool:
    print(dict(pool.map_unordered(abs, [-7])))
"""


@pytest.mark.ray
def test_workers_import_our_code_and_not_that_of_the_working_directory(tmp_path: Path) -> None:
    (tmp_path / "components").mkdir()
    (tmp_path / "components" / "__init__.py").write_text("raise ImportError('of somebody else')\n")
    command = [sys.executable, "-P", "-c", COMPILE, str(ROOT)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout == "{0: 7}\n", done.stderr
