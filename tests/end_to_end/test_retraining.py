"""What .github/workflows/retrain.yml runs: a training on a corpus in a bucket, a promotion, no reason for another."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.storage import gcs
from components.storage.cache import default_cache_dir
from tests.storage_server import storage_server
from tests.workflows import FOLDER, ROOT, Runner, load, steps

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

STEPS = {step.script.split()[2]: step for step in steps(load(FOLDER / "retrain.yml")) if "mlgo retrain" in step.script}


@pytest.fixture
def runner(finished: tuple[Path, str], tmp_path: Path) -> Iterator[Runner]:
    """A machine of a repository whose variables name a bucket with the corpus of the finished chain."""
    # Mirrors are below the cache directory, which is kept, for the sources and objects in it: they are told by name.
    bucket = f"mlgo-workflow-{secrets.token_hex(4)}"
    values = {f"vars.MLGO_{name}": f"gs://{bucket}/{path}" for name, path in (
        ("STATE", "retrain.json"), ("CORPUS", "corpus"), ("RUNS", "runs"),
    )}  # fmt: skip
    values["secrets.MLGO_NOTIFY_URL"] = ""  # as GitHub has it of a secret that nobody set
    with storage_server(bucket) as url:
        given = {gcs.EMULATOR: url, "GITHUB_RUN_ID": "7", "GITHUB_RUN_ATTEMPT": "1"}
        command = [sys.executable, "-m", "components.corpus", "import", "--input", str(finished[0] / "corpus")]
        command += ["--output", values["vars.MLGO_CORPUS"]]
        subprocess.run(command, cwd=ROOT, env=os.environ | given, check=True)
        yield Runner(tmp_path, values, given)
    shutil.rmtree(default_cache_dir() / "gs" / bucket)


def test_the_workflow_trains_promotes_and_is_content(runner: Runner) -> None:
    assert runner.run(STEPS["check"])[1]["retrain"] == "true"
    # Of two values for a parameter the later one counts: an hour becomes seconds, and any policy is good enough.
    said, _outputs = runner.run(STEPS["run"], " --param preset=tiny --param min_reduction_percent=-100")
    policy = f"{runner.values['vars.MLGO_RUNS']}/7-1/policy"
    assert said.splitlines()[-1] == "promoted: nothing was deployed"
    assert (runner.directory / "runs" / "retrain" / "logs").is_dir(), "the workflow keeps them"
    said, outputs = runner.run(STEPS["check"])
    assert outputs["retrain"] == "false" and json.loads(outputs["reasons"]) == [], said
    show = [sys.executable, "-m", "pipelines", "retrain", "show", "--state", runner.values["vars.MLGO_STATE"]]
    environment = os.environ | dict(runner.given)
    shown = subprocess.run(show, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert f"deployed: {policy} (" in shown.stdout
