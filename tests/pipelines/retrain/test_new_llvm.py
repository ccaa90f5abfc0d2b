"""A new LLVM as the reason to retrain: another version, or another revision of its package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from components.evaluation.metrics_types import Verdict
from pipelines.retrain.check import Limits, RetrainInputs, retrain_reasons
from pipelines.retrain.state import Decision, load_state
from tests.pipelines.retrain.test_promote import OLD, artifacts, mlgo, state, toolchain_at

FIRST, SECOND = "Debian clang version 19.1.7 (3~deb12u1)", "Debian clang version 19.1.7 (4)"


@pytest.mark.parametrize(
    ("deployed", "version", "clang", "reason"),
    [
        (FIRST, "19.1.7", FIRST, ""),
        (FIRST, "19.1.7", SECOND, f"LLVM is {SECOND}, but the policy was trained for {FIRST}"),
        (FIRST, "19.1.8", "clang version 19.1.8", "LLVM is 19.1.8, but the policy was trained for 19.1.7"),
        (FIRST, "19.1.7", "Ubuntu clang version 19.1.7 (4)", ""),  # the check runs elsewhere than the training
        (FIRST, "19.1.7", "", ""),
        ("", "19.1.7", SECOND, ""),  # an earlier version of this project promoted it
        ("", "19.1.8", SECOND, "LLVM is 19.1.8, but the policy was trained for 19.1.7"),
    ],
)
def test_version_and_revision_are_compared(deployed: str, version: str, clang: str, reason: str) -> None:
    inputs = RetrainInputs(0.0, llvm_version=version, clang_version=clang, modules=OLD.modules)
    assert retrain_reasons(state(clang_version=deployed), inputs, Limits()) == ([reason] if reason else [])


def test_judged_policy_answers_the_reason() -> None:
    """A check each week would otherwise train each week until luck promotes a policy for the new LLVM."""
    inputs = RetrainInputs(0.0, llvm_version="19.1.7", clang_version=SECOND)
    refused = Decision("not promoted", 1.0, "me", "as good", "gs://b/new", "n" * 64, clang_version=SECOND)
    deployed = state(clang_version=FIRST)
    assert retrain_reasons(deployed.decided(refused), inputs, Limits()) == []
    assert retrain_reasons(deployed.decided(replace(refused, clang_version=FIRST)), inputs, Limits())
    changed = replace(inputs, modules={"m1": "other"})
    assert len(retrain_reasons(deployed.decided(refused), changed, Limits())) == 1, "the code is a reason of its own"


def test_promotion_remembers_the_llvm_that_the_check_compares(tmp_path: Path) -> None:
    state_path, output = tmp_path / "state.json", tmp_path / "github"

    def promote(name: str, verdict: Verdict, clang: str) -> str:
        run = artifacts(tmp_path / name, [950] * 8, verdict, loadable=True, seed=len(name))
        training = toolchain_at(tmp_path / f"{name}-clang", clang_version=clang)
        places = (f"--{key}={place}" for key, place in run.items())
        done = mlgo("promote", "--state", state_path, *places, "--toolchain", training)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def check(clang: str) -> str:
        toolchain = toolchain_at(tmp_path / "now", clang_version=clang)
        done = mlgo("check", "--state", state_path, "--toolchain", toolchain, "--github-output", output)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert promote("first", "better", FIRST).startswith("promoted")
    deployed = load_state(str(state_path)).deployed
    assert deployed is not None and deployed.clang_version == FIRST
    assert check(SECOND) == f"retrain: LLVM is {SECOND}, but the policy was trained for {FIRST}\n"
    assert output.read_text().splitlines()[-2] == "retrain=true"
    assert promote("refused", "not better", SECOND).startswith("not promoted")
    assert check(SECOND) == "no reason to retrain\n"
