"""Test of what .github/workflows/retrain.yml runs: training on a corpus in a bucket, promotion, no further reason."""

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

from components.core.formats.toolchain import load_toolchain
from components.platform.storage import digest
from components.platform.storage.cache import default_cache_dir
from components.platform.storage.object_storage import gcs
from tests.servers.storage_server import storage_server
from tests.support.workflows import FOLDER, ROOT, Runner, load, steps

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

STEPS = {step.script.split()[2]: step for step in steps(load(FOLDER / "retrain.yml")) if "mlgo retrain" in step.script}


@pytest.fixture
def runner(finished: tuple[Path, str], tmp_path: Path) -> Iterator[Runner]:
    """Return a runner of a repository whose variables name a bucket with the corpus of the finished run."""
    # The cache directory is kept for its sources and objects; mirrors in it are distinguished by the bucket's name.
    bucket = f"mlgo-workflow-{secrets.token_hex(4)}"
    values = {
        f"vars.MLGO_{name}": f"gs://{bucket}/{path}"
        for name, path in (
            ("STATE", "retrain.json"),
            ("CORPUS", "corpus"),
            ("RUNS", "runs"),
        )
    }
    values["secrets.MLGO_NOTIFY_URL"] = ""  # GitHub's value of a secret that is not set
    values |= {f"inputs.{name}": "" for name in ("reason", "preset", "train_minutes")}  # as on a schedule
    with storage_server(bucket) as url:
        variables = {gcs.EMULATOR_VARIABLE: url, "GITHUB_RUN_ID": "7", "GITHUB_RUN_ATTEMPT": "1"}
        command = [sys.executable, "-m", "components.corpus", "import", "--input", str(finished[0] / "corpus")]
        command += ["--output", values["vars.MLGO_CORPUS"]]
        subprocess.run(command, cwd=ROOT, env=os.environ | variables, check=True)
        yield Runner(tmp_path, values, variables)
    shutil.rmtree(default_cache_dir() / "gs" / bucket)


def test_workflow_trains_promotes_and_has_no_further_reason(runner: Runner) -> None:
    assert runner.run(STEPS["check"])[1]["retrain"] == "true"
    # The last value of a parameter counts: this makes an hour seconds, and accepts any policy.
    said, _outputs = runner.run(STEPS["run"], " --param preset=tiny --param min_reduction_percent=-100")
    policy = f"{runner.values['vars.MLGO_RUNS']}/7-1/policy"
    assert said.splitlines()[-1].startswith("promoted: against LLVM's heuristic, as nothing is deployed, ")
    assert (runner.directory / "runs" / "retrain" / "logs").is_dir(), "the workflow uploads them"
    said, outputs = runner.run(STEPS["check"])
    assert outputs["retrain"] == "false" and json.loads(outputs["reasons"]) == [], said
    show = [sys.executable, "-m", "pipelines", "retrain", "show", "--state", runner.values["vars.MLGO_STATE"]]
    environment = os.environ | dict(runner.given)
    shown = subprocess.run(show, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert f"deployed: {policy} (" in shown.stdout


def test_last_step_of_the_pipeline_promotes(finished: tuple[Path, str], tmp_path: Path) -> None:
    """A second run starts from the deployed policy, which it may not overwrite. It gains nothing, and delivers that."""
    state, first, second = tmp_path / "retrain.json", tmp_path / "run", tmp_path / "run2"
    shutil.copytree(finished[0], first, symlinks=True)
    params = ("recipe=tiny", "preset=tiny", "min_reduction_percent=-100", f"retrain_state={state}", "promoted_by=me")

    def run(output: Path, *more: str) -> subprocess.CompletedProcess[str]:
        options = [part for param in (*params, *more) for part in ("--param", param)]
        command = [sys.executable, "-m", "pipelines", "pipeline", "run", "--output", str(output), *options]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    done = run(first)
    assert done.returncode == 0, done.stdout + done.stderr
    decision = json.loads((first / "promotion" / "promotion.json").read_text())["decision"]
    assert decision.startswith("promoted: against LLVM's heuristic, as nothing is deployed, ")
    document = json.loads(state.read_text())
    assert document["deployed"]["policy"] == str(first / "policy") and document["deployed"]["promoted_by"] == "me"
    done = run(first)
    assert done.returncode == 1 and "this run would overwrite it" in done.stderr
    shutil.copytree(finished[0], second, symlinks=True)
    nothing = ("gin_bindings=PpoParameters.learning_rate=0", "min_reduction_percent=1", "release_if=always")
    done = run(second, *nothing)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the pipeline ended: SUCCEEDED" in done.stdout
    assert f"starting from {first / 'policy'}" in (second / "logs" / "warmstart.log").read_text()
    _expect_start(second, done.stdout)
    # It is not promoted as a new policy, but counts as compared.
    refused = json.loads((second / "refusal" / "promotion.json").read_text())
    assert refused["promoted"] == 0 and "not better" in refused["decision"] and not (second / "promotion").exists()
    after = json.loads(state.read_text())
    assert after["deployed"] == document["deployed"]
    assert [entry["against"] for entry in after["decisions"]] == [document["deployed"]["policy_digest"], ""]


def _expect_start(run: Path, said: str) -> None:
    """The release clang embeds the policy that training started from, and the report is about that."""
    evaluation, report = (
        json.loads((run / name / "metrics.json").read_text()) for name in ("evaluation", "release_report")
    )
    assert (evaluation["verdict"], evaluation["release_policy"]) == ("not better", "start")
    start = digest(run / "warmstart")
    assert digest(run / "release_policy") == start != digest(run / "policy")
    assert load_toolchain(run / "release").built["policies"] == {"inlining": start}
    assert (report["inputs"]["policy_role"], report["inputs"]["policy_digest"]) == ("start", start)
    assert report["as_under_the_training_clang"] == report["modules"]
    assert report["policy_bytes"] == evaluation["warmstart"]["policy_bytes"]
    assert report["reference"]["policy_bytes"] == evaluation["policy_bytes"]
    embedded = "he release clang embeds the policy that training started from"
    table = said[said.rindex("Text size of the held-out modules") :]
    assert embedded in table and str(run / "release" / "bin" / "clang") in table
    for name in ("report.html", "model-card.md", "summary.md"):
        assert embedded in (run / "release_report" / name).read_text(), name
