"""The smoke test on a real KFP server, which MLGO_TEST_KFP_HOST names; images must be pushed (build/images.json).

MLGO_TEST_KFP_OPTIONS: further options of `mlgo pipeline submit`, for example "--overrides
docs/examples/kfp-seaweedfs.yaml --artifact-root s3://mlpipeline/mlgo", with which `fail_once` can be tried.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.smoke.rows import TABLE_HEADING
from pipelines.submit.kfp_client import KfpAddress, KfpClient
from tests.support.schemas import PIPELINES_PYTHON

ROOT = Path(__file__).parents[2]
HOST = os.environ.get("MLGO_TEST_KFP_HOST", "")
OPTIONS = shlex.split(os.environ.get("MLGO_TEST_KFP_OPTIONS", ""))
LIMIT_S = 1100
"""Of a run: images may have to be pulled first."""

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not HOST, reason="needs a KFP server, see MLGO_TEST_KFP_HOST in docs/CONTRIBUTING.md"),
]


def mlgo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-c",
        "from pipelines.cli.main import main; main()",
        "pipeline",
        *arguments,
        "--host",
        HOST,
    ]
    environment = {**os.environ, "MLGO_PIPELINES_PYTHON": str(PIPELINES_PYTHON)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S)


def submit(*arguments: str) -> str:
    """Start the smoke test; return the ID of the run."""
    done = mlgo("submit", "--pipeline", "smoke", *OPTIONS, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    run = re.search(r"/runs/details/([-0-9a-f]+)", done.stdout)
    assert run, done.stdout
    return run[1]


def table(output: str) -> dict[str, str]:
    """Return the status of each check, without its step."""
    lines = output.partition(TABLE_HEADING)[2].splitlines()[1:]
    assert lines, output
    rows = [re.fullmatch(r"(works|fails|not tried) +(.+?) \(\w+\): .*", line) for line in lines if line[:1] != " "]
    assert all(rows), f"something else follows the table: {lines}"
    return {row[2]: row[1] for row in rows if row}


def test_smoke_test_ends_with_its_table() -> None:
    done = mlgo("watch", submit())
    assert done.returncode == 0, done.stdout + done.stderr
    checks = table(done.stdout)
    needed = ("image", "clang", "TensorFlow", "temporary files", "artifact of another step", "time between steps")
    assert {name: checks[name] for name in needed} == dict.fromkeys(needed, "works"), done.stdout
    assert checks["condition on an output parameter"] == checks["placeholder of the run's ID"] == "works"


def test_canceled_run_is_told_from_a_failed_one() -> None:
    run = submit()
    canceled = mlgo("cancel", run)
    assert canceled.returncode == 0 and f"canceling: {run}" in canceled.stdout, canceled.stdout + canceled.stderr
    watched = mlgo("watch", run)
    assert watched.returncode == 3 and "was canceled" in watched.stderr, watched.stdout + watched.stderr


@pytest.mark.skipif(
    not any(option.startswith("--artifact-root") for option in OPTIONS),
    reason="needs --artifact-root in MLGO_TEST_KFP_OPTIONS",
)
def test_failed_run_is_finished_by_retry() -> None:
    version = KfpClient(KfpAddress(HOST)).health.numbers
    run = submit("--param", "fail_once=yes")
    watched = mlgo("watch", run)
    if watched.returncode == 0:
        assert version is None or version < (2, 17), "a server whose manifests repeat what fails"
        return
    assert "this attempt fails on purpose" in watched.stderr and "launcher_v2.go" not in watched.stderr, watched.stderr
    assert f"mlgo pipeline retry {run}" in watched.stderr
    retried = mlgo("retry", run, "--wait")
    assert retried.returncode == 0, retried.stdout + retried.stderr
    assert table(retried.stdout)["step that fails"] == "works", retried.stdout
