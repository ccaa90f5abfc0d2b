"""Tests of the whole pipeline on a small recipe: the release clang works, steps are reused, a killed run resumes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from components.core.formats.toolchain import load_toolchain
from components.platform.storage import digest, verify
from pipelines.spec import COMPILED, load_spec
from pipelines.submit.overrides import override_for_kfp
from pipelines.submit.overrides_document import read_overrides
from pipelines.submit.profile import overrides_text, profile_of_directory
from tests.end_to_end.chain import ACCEPTED, command, mlgo_run, reused, run_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]

STEPS = (
    "toolchain-training",
    "corpus",
    "trace",
    "vocab",
    "warmstart",
    "ppo",
    "evaluation",
    "select-policy",
    "toolchain-release",
    "release-report",
)
ARTIFACTS = (
    "training",
    "corpus",
    "trace",
    "vocab",
    "warmstart",
    "policy",
    "evaluation",
    "release_policy",
    "release",
    "release_report",
)

HELLO = """
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>
int main() {
  std::vector<std::string> words = {"world", "hello"};
  std::sort(words.begin(), words.end());
  for (const auto &word : words) std::cout << word << ' ';
}
"""


def test_every_artifact_is_complete_and_nothing_partial_remains(finished: tuple[Path, str]) -> None:
    run, _output = finished
    for artifact in ARTIFACTS:
        verify(run / artifact)
    assert not list(run.glob(".*partial*"))


def test_metrics_agree_with_report_and_table(finished: tuple[Path, str]) -> None:
    run, output = finished
    metrics = json.loads((run / "release_report" / "metrics.json").read_text())
    judged = json.loads((run / "evaluation" / "metrics.json").read_text())
    assert (metrics["policy_compiled_by"], judged["policy_compiled_by"]) == ("release", "training")
    # The release clang makes the same decisions as the training clang, so the verdict holds for what users get.
    assert metrics["as_under_the_training_clang"] == metrics["modules"] == judged["modules"]
    assert metrics["warmstart"] == judged["warmstart"] and metrics["sweep"] == judged["sweep"]
    assert metrics["modules"] > 0 and metrics["baseline_bytes"] > 0 and metrics["policy_bytes"] > 0
    reduction = 100 * (1 - metrics["policy_bytes"] / metrics["baseline_bytes"])
    assert metrics["reduction_percent"] == pytest.approx(reduction, abs=0.01)
    assert metrics["warmstart"]["policy_bytes"] > 0
    table = output[output.rindex("Text size of the held-out modules") :]
    assert f"{metrics['baseline_bytes']:,}" in table and f"{metrics['policy_bytes']:,}" in table
    chosen = judged["release_policy"]
    for path in ("release", "policy" if chosen == "trained" else "release_policy", "release_report/report.html"):
        assert str(run / path) in table
    assert metrics["release_policy"] == metrics["inputs"]["policy_role"] == chosen != "none"
    policies = {"trained": "policy", "start": "warmstart"}
    expected = digest(run / policies[chosen]) if chosen in policies else judged["inputs"]["reference_digest"]
    assert load_toolchain(run / "release").built["policies"] == {"inlining": expected}
    assert "<html" in (run / "release_report" / "report.html").read_text()[:500].lower()


def test_report_and_profile_have_what_each_step_cost(finished: tuple[Path, str], tmp_path: Path) -> None:
    run, _output = finished
    profile = profile_of_directory(run)
    assert set(profile.costs) == set(STEPS) and not profile.failed and not profile.unknown
    assert all(cost.processor_seconds > 0 and cost.peak_memory_bytes > 10**7 for cost in profile.costs.values())
    assert profile.costs["ppo"].processor_seconds > profile.costs["vocab"].processor_seconds
    page = (run / "release_report" / "report.html").read_text().partition("What the run cost")[2]
    summary = (run / "release_report" / "summary.md").read_text().partition("What the run cost")[2]
    for step in STEPS:
        assert f"<td>{step}</td>" in page and step in summary
    (tmp_path / "used.yaml").write_text(overrides_text(profile, 50, limits_only=False))
    override_for_kfp(load_spec(COMPILED), read_overrides(tmp_path / "used.yaml"))


def test_release_clang_builds_working_program(finished: tuple[Path, str], tmp_path: Path) -> None:
    run, _output = finished
    source, program = tmp_path / "hello.cpp", tmp_path / "hello"
    source.write_text(HELLO)
    clang = run / "release" / "bin" / "clang++"
    flags = ["-Oz", "-mllvm", "-enable-ml-inliner=release"]
    subprocess.run([clang, *flags, source, "-o", program], check=True, timeout=120)
    assert subprocess.run([program], capture_output=True, text=True, timeout=60, check=True).stdout == "hello world "
    linked = subprocess.run(["ldd", run / "release" / "bin" / "clang"], capture_output=True, text=True, check=False)
    assert "tensorflow" not in linked.stdout.lower()


def test_second_run_reuses_every_step(finished: tuple[Path, str]) -> None:
    run, first = finished
    again = mlgo_run(run, *ACCEPTED)
    assert reused(first) == []
    assert sorted(reused(again)) == sorted(STEPS)
    assert again.splitlines()[-1] == first.splitlines()[-1]


def test_run_killed_while_training_resumes(finished: tuple[Path, str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished[0], run, symlinks=True)
    # With another seed, the steps after the warmstart run again, in a working directory of their own.
    command_line = command(run, *ACCEPTED, "--seed", "2")
    said = run_until("[ppo] starts", command_line, lambda: any((run / "ppo").glob("*/checkpoints/*/manifest.json")))
    assert re.search(r"^\[ppo\] starts.*earlier work is kept in", said, re.MULTILINE), said
    again = run_until("[evaluation] starts", command_line)
    assert {"toolchain-training", "corpus", "trace", "vocab", "warmstart"} <= set(reused(again))
    assert "[ppo] starts: resumes in" in again
    verify(run / "policy")
