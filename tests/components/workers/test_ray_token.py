"""A cluster with a token: who does not have it is refused, and it stands in no command line and no message."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOKEN = "5ec4e7" * 8
HEAD = """
import os, sys
from components.workers.settings import NODE_SETTINGS
os.environ.update(NODE_SETTINGS)
from ray.cluster_utils import Cluster
cluster = Cluster()
cluster.add_node(num_cpus=1, include_dashboard=False, object_store_memory=100 << 20)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""
DRIVER = """
import sys
from components.console import run_step
from components.workers.ray import RayPool
def main():
    with RayPool(sys.argv[1]) as pool:
        print(sorted(result for _, result in pool.map_unordered(abs, [-1, -2])))
run_step(main)
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of the head of a cluster whose token is TOKEN."""
    pytest.importorskip("ray")
    (tmp_path_factory.getbasetemp() / "ray-token").write_text(TOKEN)
    env = _without_token() | _with(tmp_path_factory.getbasetemp() / "ray-token")
    head = subprocess.Popen(
        [sys.executable, "-c", HEAD], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert head.stdout is not None
    # Ray tells this and that before.
    yield next(line.strip() for line in head.stdout if line.count(":") == 1 and line.strip()[-1].isdigit())
    head.communicate("", timeout=60)


def _without_token() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}


def _with(path: Path) -> dict[str, str]:
    return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(path)}


def drive(address: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", DRIVER, address]
    return subprocess.run(command, env=_without_token() | env, capture_output=True, text=True, timeout=300)


def test_who_has_the_token_is_let_in_and_it_is_not_shown(address: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN)
    done = drive(address, _with(tmp_path / "token"))
    assert done.returncode == 0 and "[1, 2]" in done.stdout, done.stderr
    assert TOKEN not in done.stdout + done.stderr
    listed = [Path(f"/proc/{pid}/cmdline") for pid in os.listdir("/proc") if pid.isdigit()]
    lines = [path.read_bytes() for path in listed if path.exists()]
    assert any(b"raylet" in line for line in lines) and not any(TOKEN.encode() in line for line in lines)


@pytest.mark.parametrize("other", [None, "another" * 7])
def test_who_has_another_token_or_none_is_refused(address: str, other: str | None, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(other or "")
    done = drive(address, _with(tmp_path / "token") if other else {"RAY_AUTH_MODE": "disabled"})
    assert done.returncode == 1 and done.stderr.startswith("error: "), done.stdout + done.stderr
    assert "Traceback" not in done.stderr and TOKEN not in done.stderr and (other or TOKEN) not in done.stderr
    assert "RAY_AUTH_TOKEN_PATH=FILE" in done.stderr
