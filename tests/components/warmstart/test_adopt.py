"""Training may start from a trained policy, which becomes the warmstart unchanged."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from components.core.formats.deployment import DeployedPolicy, Deployment
from components.core.formats.features import FeatureSpec
from components.core.formats.policy import HEURISTIC, PolicyInfo, load_policy_info
from components.core.formats.trace import load_trace
from components.core.formats.vocab import write_vocab
from components.core.policy.dense import DensePolicy, read_dense
from components.core.policy.export import export_policy
from components.platform.errors import UserError
from components.platform.storage import digest, publish
from components.warmstart.__main__ import main
from components.warmstart.adopt import find_deployed_start
from components.warmstart.config import WarmstartConfig
from components.warmstart.report import WarmstartReport
from components.warmstart.train import train

FEATURES = tuple(FeatureSpec(name, "int64") for name in ("cost", "threshold", "blocks"))


def publish_policy(directory: Path, policy: DensePolicy) -> Path:
    clang = Path(str(shutil.which("clang-19")))
    info = PolicyInfo(policy.problem, policy.features, policy.num_actions, trained_by="ppo", vocab_digest="their own")
    with publish(directory, "policy") as partial:
        export_policy(policy, partial, clang, info)
    return directory


def dense(features: tuple[FeatureSpec, ...] = FEATURES) -> DensePolicy:
    """Inlines what costs less than the median of its boundaries."""
    boundaries = {f.name: np.linspace(-100, 100, 1000) for f in features}
    weights = np.zeros((2 * len(features), 2), np.float32)
    weights[0] = [1, -1]
    return DensePolicy("inlining", features, boundaries, ((weights, np.array([-0.5, 0.5], np.float32)),))


def config(inputs: dict[str, Path], output: Path, start: str) -> WarmstartConfig:
    return WarmstartConfig(inputs["trace"], inputs["vocab"], inputs["toolchain"], output, start_from=start)


def test_adopted_policy_keeps_its_normalization(inputs: dict[str, Path], tmp_path: Path) -> None:
    policy = dense()
    report = train(config(inputs, tmp_path / "warmstart", str(publish_policy(tmp_path / "theirs", policy))))
    adopted = read_dense(tmp_path / "warmstart")
    for name, boundaries in policy.buckets.items():
        np.testing.assert_array_equal(adopted.buckets[name], boundaries)
    np.testing.assert_array_equal(adopted.layers[0][0], policy.layers[0][0])
    info = load_policy_info(tmp_path / "warmstart")
    assert (info.trained_by, info.vocab_digest) == ("ppo", "their own")
    assert info.toolchain_digest == digest(inputs["toolchain"]) and info.trace_digest == digest(inputs["trace"])
    assert 0.5 < report.agreement < 1 and report.epochs == 0
    written = json.loads((tmp_path / "warmstart" / "report.json").read_text())
    assert written["agreement"] == report.agreement and written["loss"] is None
    # Nothing is trained, so nothing is held out: all decisions of the trace are compared.
    assert (written["decisions"], written["heldout_decisions"]) == (0, 0)
    assert written["compared_decisions"] == load_trace(inputs["trace"]).decisions
    assert sum(map(sum, written["confusion_matrix"]["rows"])) == written["compared_decisions"]
    assert report.summary().endswith(f"of {written['compared_decisions']} decisions of the trace")


@pytest.mark.parametrize(
    ("decisions", "heldout", "compared", "summary"),
    [
        (80, 20, 20, "agrees with the heuristic in 75.00% of 20 held-out decisions"),
        (100, 0, 0, "agrees with the heuristic in 50.00% of 100 training decisions; none are held out"),
        (0, 0, 100, "agrees with the heuristic in 75.00% of 100 decisions of the trace"),
        (0, 0, 0, "not compared with the heuristic: the trace has no decisions"),
    ],
)
def test_summary_names_the_decisions_that_were_compared(
    decisions: int, heldout: int, compared: int, summary: str
) -> None:
    agreement = 0.75 if compared else math.nan
    report = WarmstartReport(agreement, 0.5, decisions, heldout, compared, 1, 0.0, 0.0, 0.0, 0.0)
    assert report.summary() == summary


@pytest.mark.parametrize("name", ["trace", "other"])
def test_what_is_not_a_vocab_of_the_trace_is_refused(inputs: dict[str, Path], tmp_path: Path, name: str) -> None:
    other = tmp_path / "other"
    with publish(other, "vocab") as partial:
        write_vocab(partial, {"other": np.zeros(1000)})
    policy = publish_policy(tmp_path / "p", dense())
    wrong = dataclasses.replace(config(inputs, tmp_path / "o", str(policy)), vocab={**inputs, "other": other}[name])
    with pytest.raises(UserError, match=r"a vocab|lacks"):
        train(wrong)
    assert not (tmp_path / "o").exists()


def test_unusable_start_policies_are_refused(inputs: dict[str, Path], tmp_path: Path) -> None:
    output = tmp_path / "warmstart"
    with pytest.raises(UserError, match="a policy"):
        train(config(inputs, output, str(tmp_path)))
    other = dataclasses.replace(FEATURES[0], name="unknown_here")
    with pytest.raises(UserError, match="unknown_here"):
        train(config(inputs, output, str(publish_policy(tmp_path / "other", dense((other, *FEATURES[1:]))))))
    with pytest.raises(UserError, match="not log"):
        train(config(inputs, output, "pretrained"))
    assert not output.exists()


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
