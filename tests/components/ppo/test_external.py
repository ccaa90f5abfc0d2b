"""Training with a clang of LLVM's own development mode, which others built."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from components.core.formats.policy import load_policy_info
from components.core.formats.toolchain import Toolchain
from components.platform.errors import UserError
from components.ppo.config import restrict_to_capabilities
from components.toolchain.config import ToolchainConfig
from components.toolchain.make import make_toolchain
from tests.components.ppo.runs import command_line, step, write_start_policy
from tests.support.fork_server import ForkedStep

pytestmark = pytest.mark.tf


@pytest.mark.timeout(1500)
def test_trace_and_training_work_without_our_advisors(artifacts, upstream_clang: Path, tmp_path: Path) -> None:
    toolchain = tmp_path / "training"
    external = make_toolchain(ToolchainConfig("training", toolchain, "external", clang=str(upstream_clang)))
    trace = tmp_path / "trace"
    step("trace", "--corpus", artifacts["corpus"], "--toolchain", toolchain, "--output", trace)
    step("vocab", "--trace", trace, "--output", tmp_path / "vocab")
    features = write_start_policy(tmp_path / "start", tmp_path / "vocab", external.features["inlining"])
    options = artifacts | {"toolchain": toolchain, "trace": trace, "warmstart": tmp_path / "start", "iterations": 2}
    options |= {"root_dir": tmp_path / "root", "output": tmp_path / "policy"}
    process = ForkedStep("ppo", *command_line(options))
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert "the training clang was built by others: training by PPO" in output + errors
    report = json.loads((tmp_path / "policy" / "report.json").read_text())
    assert report["hyperparameters"]["step"]["credit_assignment"] == "module"
    assert [number for number, _ in report["validation_history"]] == [0, 2]
    assert len(set(report["mean_rewards"])) == 2 and not report["quarantine"]["modules"]
    assert set(load_policy_info(tmp_path / "policy").features) == set(features)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"algorithm": "dqn"}, "--algorithm dqn for inlining needs"),
        ({"algorithm": "ppo", "credit_assignment": "function"}, "--credit-assignment function for inlining needs"),
        ({"problem": "regalloc", "algorithm": "ppo"}, "--algorithm ppo for regalloc needs"),
    ],
)
def test_options_that_need_our_advisors_are_refused(asked: dict[str, str], said: str) -> None:
    clang = Toolchain(Path("training"), "training", "19.1.7", "", {}, {}, capabilities=frozenset())
    with pytest.raises(UserError, match=said):
        restrict_to_capabilities(clang, asked)


def test_algorithm_is_one_that_the_clang_can_train_by() -> None:
    theirs = Toolchain(Path("training"), "training", "19.1.7", "", {}, {}, capabilities=frozenset())
    module = {"credit_assignment": "module"}
    assert restrict_to_capabilities(theirs, {}) == {"algorithm": "ppo"} | module
    assert restrict_to_capabilities(theirs, {"algorithm": "es"}) == {"algorithm": "es"} | module
    assert restrict_to_capabilities(theirs, {"problem": "regalloc"})["algorithm"] == "es"
    ours = Toolchain(Path("training"), "training", "19.1.7", "", {}, {})
    assert restrict_to_capabilities(ours, {"algorithm": "dqn"}) == {"algorithm": "dqn"}
