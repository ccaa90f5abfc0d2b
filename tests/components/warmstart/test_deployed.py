"""Training starts from the policy that a state of retraining has deployed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from components.core.formats.deployment import DeployedPolicy, Deployment
from components.core.formats.policy import HEURISTIC, load_policy_info
from components.core.policy.dense import read_dense
from components.platform.errors import UserError
from components.platform.storage import digest, publish
from components.warmstart.__main__ import main
from components.warmstart.adopt import find_deployed_start
from tests.components.warmstart.test_adopt import dense, publish_policy


def make_deployed(policy: Path, llvm_version: str = "19.1.7") -> DeployedPolicy:
    return DeployedPolicy(str(policy), digest(policy), "inlining", llvm_version)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return publish_policy(tmp_path / "policy", dense())


def test_start_depends_on_what_is_deployed(inputs: dict[str, Path], policy: Path) -> None:
    toolchain = inputs["toolchain"]
    assert find_deployed_start(Deployment(), toolchain) == HEURISTIC
    assert find_deployed_start(Deployment(make_deployed(policy)), toolchain) == str(policy)
    assert find_deployed_start(Deployment(make_deployed(policy, "19.9.0")), toolchain) == str(policy)
    assert find_deployed_start(Deployment(make_deployed(policy, "22.1.0")), toolchain) == HEURISTIC


def test_changed_policy_is_refused(inputs: dict[str, Path], policy: Path) -> None:
    promoted = make_deployed(policy)
    with publish(policy, "policy") as directory:
        (directory / "policy.json").write_text("{}")
    with pytest.raises(UserError, match="changed"):
        find_deployed_start(Deployment(promoted), inputs["toolchain"])
    with pytest.raises(UserError, match="nowhere"):
        find_deployed_start(Deployment(DeployedPolicy("/nowhere", "d", "inlining", "19.1.7")), inputs["toolchain"])


@pytest.mark.parametrize("start", [(), ("--start-from", "heuristic")])
def test_step_takes_the_deployed_policy_and_lists_regressed_modules(
    inputs: dict[str, Path], policy: Path, tmp_path: Path, start: tuple[str, ...]
) -> None:
    state, output = tmp_path / "state.json", tmp_path / "warmstart"
    document = {"policy": str(policy), "policy_digest": digest(policy), "problem": "inlining", "llvm_version": "19.1.7"}
    state.write_text(json.dumps({"version": 3, "deployed": document, "history": [], "regressed": ["p/m1", "p/m2"]}))
    arguments = [f"--{name}={path}" for name, path in inputs.items()]
    arguments += ["--output", str(output), "--retrain-state", str(state), "--preset", "tiny", "--epochs", "1", *start]
    CliRunner().invoke(main, arguments, catch_exceptions=False, standalone_mode=False)
    assert json.loads((output / "regressed.json").read_text()) == ["p/m1", "p/m2"]
    assert load_policy_info(output).trained_by == ("warmstart" if start else "ppo")
    if not start:
        assert (read_dense(output).layers[0][0] == read_dense(policy).layers[0][0]).all()
