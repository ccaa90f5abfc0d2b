"""Register allocation from its trace to a trained policy, with the real training clang."""

import json
import shutil
import subprocess

import pytest

from components.core import problems
from components.core.formats.corpus import load_corpus
from components.core.formats.policy import load_policy_info
from components.core.formats.splits import Splits, write_splits
from components.platform.storage import write_manifest
from tests.components.ppo.runs import LEARNING, SMALL, command_line, step, train

pytestmark = pytest.mark.tf


@pytest.fixture(scope="module")
def regalloc(tmp_path_factory, make_corpus, training_toolchain):
    """The corpus and what trace, vocab and warmstart make of it."""
    from tests.components.conftest import PRESSED

    root = tmp_path_factory.mktemp("regalloc")
    corpus = make_corpus(root / "corpus", PRESSED).directory
    modules = [module.name for module in load_corpus(corpus)]
    (validation,) = (name for name in modules if "doubles" in name)
    write_splits(corpus, Splits(0, tuple(name for name in modules if name != validation), (validation,), ()))
    write_manifest(corpus)
    toolchain = ("--toolchain", training_toolchain)
    step("trace", "--corpus", corpus, *toolchain, "--output", root / "trace", "--problem", "regalloc")
    step("vocab", "--trace", root / "trace", "--output", root / "vocab")
    inputs = {"trace": root / "trace", "vocab": root / "vocab", "toolchain": training_toolchain}
    settings = {"epochs": 200, "batch_size": 32, "heldout_fraction": 0}
    step("warmstart", *command_line(inputs | {"output": root / "warmstart"} | settings))
    return root


@pytest.fixture(scope="module")
def options(regalloc, training_toolchain):
    inputs = {name: regalloc / name for name in ("corpus", "trace", "warmstart")}
    return {**inputs, "toolchain": training_toolchain, "iterations": 3, **SMALL}


def test_warmstart_decides_like_the_heuristic(regalloc):
    report = json.loads((regalloc / "warmstart" / "report.json").read_text())
    assert report["training_agreement"] > 0.8 and report["decisions"] > 100
    info = load_policy_info(regalloc / "warmstart")
    assert (info.problem, info.num_actions) == ("regalloc", problems.get("regalloc").policy.num_actions)


@pytest.mark.parametrize("learning", ["dqn", "ppo"])
def test_equal_seeds_give_equal_rewards(options, tmp_path, learning):
    words = [*command_line(options | {"problem": "regalloc"}), *LEARNING[learning]]
    one, two = (train(words, tmp_path / name, fresh=name == "two") for name in ("one", "two"))
    assert one["mean_rewards"] == two["mean_rewards"] and any(one["mean_rewards"])
    assert one["validation_history"] == two["validation_history"]
    assert [iteration for iteration, _ in one["validation_history"]] == [0, 2, 3]
    info = load_policy_info(tmp_path / "one" / "policy")
    assert (info.problem, info.trained_by) == ("regalloc", "ppo")
    assert info.features[0].name == "mask"


def test_trace_of_another_problem_is_refused(options, tmp_path):
    with pytest.raises(subprocess.CalledProcessError) as caught:
        step("ppo", *command_line(options | {"root_dir": tmp_path / "root", "output": tmp_path / "policy"}))
    assert "is for the problem regalloc, not inlining" in caught.value.stderr
    assert "Traceback" not in caught.value.stderr


def test_compiler_with_other_features_is_refused_with_the_difference(options, training_toolchain, tmp_path):
    """The compiler is like a clang of another LLVM version. Nothing is compiled."""
    other = tmp_path / "training"
    shutil.copytree(training_toolchain, other, symlinks=True)
    (other / "manifest.json").unlink()
    described = json.loads((other / "toolchain.json").read_text())
    for feature in described["features"]["regalloc"]:
        feature["name"] = "density" if feature["name"] == "use_def_density" else feature["name"]
        feature["shape"] = [1, 65] if feature["name"] == "mask" else feature["shape"]
    (other / "toolchain.json").write_text(json.dumps(described))
    write_manifest(other)
    outputs = {"root_dir": tmp_path / "root", "output": tmp_path / "policy"}
    with pytest.raises(subprocess.CalledProcessError) as caught:
        step("ppo", *command_line(options | {"toolchain": other, "problem": "regalloc"} | outputs))
    said = caught.value.stderr
    assert "this compiler does not log: use_def_density" in said and "the policy does not use: density" in said
    assert "mask is int64[1, 33] in the policy and int64[1, 65] in the compiler" in said
    assert "Traceback" not in said and [path.name for path in tmp_path.iterdir()] == ["training"]
