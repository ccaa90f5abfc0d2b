"""Test of a fine-tuning that gains nothing over its start: the run delivers the start's release clang and succeeds."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from components.core.formats.toolchain import load_toolchain
from components.platform.storage import digest
from tests.support.workflows import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

START_TITLE = "pretrained policy, from which training started"


def test_fine_tuning_without_gain_delivers_the_start(finished: tuple[Path, str], tmp_path: Path) -> None:
    run, state = tmp_path / "run", tmp_path / "retrain.json"
    shutil.copytree(finished[0], run, symlinks=True)
    parameters = {
        "recipe": "tiny",
        "preset": "tiny",
        "start_from": "pretrained",
        "release_if": "always",
        "gin_bindings": "PpoParameters.learning_rate=0",
        "retrain_state": str(state),
    }
    command = [sys.executable, "-m", "pipelines", "pipeline", "run", "--output", str(run)]
    command += [part for name, value in parameters.items() for part in ("--param", f"{name}={value}")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the pipeline ended: SUCCEEDED" in done.stdout
    evaluation, report = (
        json.loads((run / name / "metrics.json").read_text()) for name in ("evaluation", "release_report")
    )
    assert (evaluation["verdict"], evaluation["release_policy"]) == ("not better", "start")
    assert evaluation["inputs"]["warmstart_pretrained"] == "pretrained"
    start = digest(run / "warmstart")
    assert digest(run / "release_policy") == start != digest(run / "policy")
    assert load_toolchain(run / "release").built["policies"] == {"inlining": start}
    # The report is about the start, compiled by the release clang that embeds it.
    assert (report["inputs"]["policy_role"], report["inputs"]["policy_digest"]) == ("start", start)
    assert report["as_under_the_training_clang"] == report["modules"]
    assert report["policy_bytes"] == evaluation["warmstart"]["policy_bytes"]
    assert report["reference"]["policy_bytes"] == evaluation["policy_bytes"]
    table = done.stdout[done.stdout.rindex("Text size of the held-out modules") :]
    # Then "not the trained policy, ..." or, where both are equal, "because training found nothing better".
    note = f"the release clang embeds the {START_TITLE}, "
    assert note in table and str(run / "release" / "bin" / "clang") in table
    for name in ("report.html", "model-card.md", "summary.md"):
        assert "he release clang embeds the pretrained policy" in (run / "release_report" / name).read_text(), name
    # It is not promoted as a new policy.
    refused = json.loads((run / "refusal" / "promotion.json").read_text())
    assert refused["promoted"] == 0 and "not better" in refused["decision"] and not (run / "promotion").exists()
    assert json.loads(state.read_text()).get("deployed") is None
