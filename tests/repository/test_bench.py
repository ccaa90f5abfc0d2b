"""Tests of the benchmarks on a fresh machine. end_to_end/test_bench.py runs the benchmarks themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.bench.parts import toolchain

ROOT = Path(__file__).parents[2]
SIMULATE = """
from tests.bench.simulation import simulated
with simulated(1) as (pool, head):
    print("slots:", pool.size, "results:", sorted(result for _, result in pool.map_unordered(abs, [-1, -2])))
"""


def test_plain_clang_is_built_without_policies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`build` looks up each problem in its policies, so it needs an empty mapping."""
    build_arguments: list[Any] = []

    @contextmanager
    def build_tree(*_arguments: Any) -> Iterator[Path]:
        yield tmp_path

    def build(*arguments: Any) -> Path:
        build_arguments.extend(arguments)
        return tmp_path / "plain"

    monkeypatch.setattr(toolchain, "build_tree", build_tree)
    monkeypatch.setattr(toolchain, "build", build)
    sdk: Any = SimpleNamespace(version="19.1.7")
    assert toolchain._plain(tmp_path, sdk, tmp_path / "source" / "llvm") == tmp_path / "plain"
    policies = build_arguments[6]
    assert isinstance(policies, Mapping) and not policies


@pytest.mark.ray
@pytest.mark.timeout(600)
def test_cluster_is_simulated_on_machine_without_ray_directory(tmp_path: Path) -> None:
    """Ray creates its directory in $TMPDIR when it starts; the simulated cluster's directory is elsewhere."""
    pytest.importorskip("ray")
    env = {name: value for name, value in os.environ.items() if name != "RAY_TMPDIR"}
    env |= {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", SIMULATE], env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0 and "slots: 1 results: [1, 2]" in done.stdout, done.stdout + done.stderr
    assert not list(tmp_path.glob("ray/ray_current_cluster")), "another Ray on this machine would connect to it"
