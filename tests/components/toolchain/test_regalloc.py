"""Register allocation in both clangs: features and code equal LLVM's, and policies take the decisions."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core import problems
from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import CompileError, Compiler, Request
from components.core.compiler.forced_decisions import ForcedDecisions
from components.core.compiler.logs.training_log import Context, read_log
from components.core.compiler.sample import Sample
from components.core.counterfactual.regalloc import attribute_savings, plan_flips
from components.core.formats.corpus import Corpus, Module
from components.core.formats.features import FeatureSpec
from components.core.formats.policy import PolicyInfo, write_policy_info
from components.core.formats.toolchain import load_toolchain
from components.core.objectives.geometric_mean import log_scores
from components.core.policy.dense import DensePolicy
from components.core.policy.export import export_fast
from components.core.policy.feature_encoding import inputs_per_feature
from components.platform.errors import UserError
from components.platform.storage import digest, publish
from components.platform.storage.cache import default_cache_dir
from components.toolchain import make
from components.toolchain.config import ToolchainConfig
from components.toolchain.make import make_toolchain
from components.toolchain.sdk import find_sdk
from components.toolchain.source import fetch_source_files
from tests.support.samples import random_layers

pytestmark = pytest.mark.toolchain

PROBLEM = problems.get("regalloc")


def module_named(corpus: Corpus, name: str) -> Module:
    return next(module for module in corpus if name in module.name)


def write_policy(directory: Path, toolchain: Path, features: tuple[FeatureSpec, ...]) -> DensePolicy:
    """Write and return a policy with random weights, which decides differently from the heuristic."""
    buckets = {f.name: np.linspace(0, 1, 50) for f in features if f.name != "mask"}
    layers = random_layers([inputs_per_feature(masked=True) * len(buckets), 16, 1])
    policy = DensePolicy("regalloc", features, buckets, layers)
    with publish(directory, "policy") as partial:
        export_fast(policy, partial, load_toolchain(toolchain).clang)
        policy.save(partial)
        write_policy_info(partial, PolicyInfo("regalloc", features, policy.num_actions, trained_by="warmstart"))
    return policy


@pytest.fixture(scope="module")
def dense(training_toolchain: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, DensePolicy]:
    directory = tmp_path_factory.mktemp("regalloc") / "policy"
    features = load_toolchain(training_toolchain).features["regalloc"]
    return directory, write_policy(directory, training_toolchain, features)


def compile_module(toolchain: Path, module: Path, output: Path, *options: str) -> bytes:
    flags = [argument for option in options for argument in ("-mllvm", option)]
    subprocess.run([toolchain / "bin" / "clang", "-Oz", *flags, "-c", module, "-o", output], check=True)
    return output.read_bytes()


def samples(toolchain: Path, module: Module, advisor: Advisor) -> tuple[Sample, ...]:
    return Compiler(toolchain / "bin" / "clang", "regalloc")(Request(module, advisor)).samples


def decided(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """Return the mask [N, 33] and the decisions [N] of a function."""
    mask = context.columns["mask"].reshape(-1, PROBLEM.policy.num_actions)
    return mask, context.columns[PROBLEM.policy.decision].reshape(-1)


def test_toolchain_json_lists_features_of_both_problems(training_toolchain: Path) -> None:
    features = load_toolchain(training_toolchain).features
    assert set(features) == {"inlining", "regalloc"}
    specs = {spec.name: spec for spec in features["regalloc"]}
    assert specs["mask"] == FeatureSpec("mask", "int64", (1, 33))
    assert specs["use_def_density"] == FeatureSpec("use_def_density", "float32", (1, 33))
    assert specs["progress"].shape == (1,)
    assert PROBLEM.policy.decision not in specs and not PROBLEM.policy.per_instruction_features & set(specs)


def test_features_and_code_equal_llvms(training_toolchain: Path, pressed_corpus: Corpus, tmp_path: Path) -> None:
    """LLVM's release mode sends the features to another process, and gets the heuristic's decisions from it."""
    total = 0
    for module in pressed_corpus:
        log = f"{PROBLEM.llvm.log_option}={tmp_path / 'log'}"
        ours = compile_module(
            training_toolchain, module.bitcode, tmp_path / "o", *PROBLEM.llvm.development_options, log
        )
        assert ours == compile_module(training_toolchain, module.bitcode, tmp_path / "o")
        logged = {context.name: context for context in read_log(tmp_path / "log").contexts}
        decisions = [decided(context)[1] for context in logged.values()]
        total += sum(map(len, decisions))
        channel = tmp_path / "channel"
        replies = np.concatenate(decisions) if decisions else np.empty(0, np.int64)
        channel.with_suffix(".in").write_bytes(replies.astype("<i8").tobytes())
        channel_option = f"{PROBLEM.llvm.channel_option}={channel}"
        assert (
            compile_module(
                training_toolchain, module.bitcode, tmp_path / "o", *PROBLEM.llvm.release_options, channel_option
            )
            == ours
        )
        for sent in read_log(channel.with_suffix(".out")).contexts:
            for name, column in sent.columns.items():
                if len(sent):
                    np.testing.assert_array_equal(logged[sent.name].columns[name], column, err_msg=name)
    assert total > 100


def test_per_instruction_features_are_optional(
    training_toolchain: Path, pressed_corpus: Corpus, tmp_path: Path
) -> None:
    module = module_named(pressed_corpus, "pressed")
    log = f"{PROBLEM.llvm.log_option}={tmp_path / 'log'}"
    options = (*PROBLEM.llvm.development_options, "-regalloc-enable-development-features", log)
    compile_module(training_toolchain, module.bitcode, tmp_path / "o", *options)
    specs = {spec.name: spec.shape for spec in read_log(tmp_path / "log").features}
    assert specs["instructions_mapping"] == (1, 33, 300) and set(specs) >= PROBLEM.policy.per_instruction_features


def test_policy_decides_by_logits_and_respects_the_mask(
    training_toolchain: Path, pressed_corpus: Corpus, dense: tuple[Path, DensePolicy]
) -> None:
    directory, policy = dense
    module = module_named(pressed_corpus, "pressed")
    for seed in (None, 1, 2):
        (sample,) = samples(training_toolchain, module, Advisor("policy", directory, seed=seed, log=True))
        assert sample.log is not None and {c.name for c in sample.log.contexts} == {"mix", "calls"}
        for context in sample.log.contexts:
            mask, actions = decided(context)
            assert mask[np.arange(len(mask)), actions].all()
            logits = context.columns[PROBLEM.policy.logits].reshape(mask.shape)
            np.testing.assert_array_equal(np.isneginf(logits), mask == 0)
            np.testing.assert_allclose(logits, policy.logits(context.columns), rtol=1e-4, atol=1e-4)
            greedy = actions == logits.argmax(axis=1)
            assert greedy.all() if seed is None else 0.2 < greedy.mean() < 1


def test_samples_are_determined_by_their_seeds(
    training_toolchain: Path, pressed_corpus: Corpus, dense: tuple[Path, DensePolicy]
) -> None:
    for module in pressed_corpus:
        several = samples(training_toolchain, module, Advisor("policy", dense[0], seed=7, samples=3, log=True))
        assert len(several) == 3
        for i, sample in enumerate(several):
            (alone,) = samples(training_toolchain, module, Advisor("policy", dense[0], seed=7 + i, log=True))
            assert sample.scores == alone.scores
            assert [len(c) for c in sample.log.contexts] == [len(c) for c in alone.log.contexts]
        if "pressed" in module.name:
            assert len({tuple(sample.scores.values()) for sample in several}) == 3
        if "leaf" in module.name:
            assert all(sample.scores == {} for sample in several)


def test_policy_with_other_feature_shapes_is_refused(
    training_toolchain: Path, pressed_corpus: Corpus, tmp_path: Path
) -> None:
    features = load_toolchain(training_toolchain).features["regalloc"]
    other = tuple(FeatureSpec("progress", "float32", (1, 33)) if f.name == "progress" else f for f in features)
    write_policy(tmp_path / "policy", training_toolchain, (*other, FeatureSpec("mood", "int64")))
    module = module_named(pressed_corpus, "pressed")
    with pytest.raises(CompileError, match=r"does not log: progress \(float\[1,33\]\), mood \(int64_t\[1\]\)"):
        samples(training_toolchain, module, Advisor("policy", tmp_path / "policy", log=True))


def test_unwritable_log_fails_the_compile(training_toolchain: Path, pressed_corpus: Corpus, tmp_path: Path) -> None:
    options = (*PROBLEM.llvm.development_options, f"{PROBLEM.llvm.log_option}={tmp_path / 'nowhere' / 'log'}")
    with pytest.raises(subprocess.CalledProcessError):
        compile_module(training_toolchain, module_named(pressed_corpus, "pressed").bitcode, tmp_path / "o", *options)


def test_release_clang_embeds_one_or_two_policies(
    training_toolchain: Path,
    policy: Path,
    dense: tuple[Path, DensePolicy],
    pressed_corpus: Corpus,
    tiny_corpus: Corpus,
    tmp_path: Path,
) -> None:
    both = tmp_path / "both"
    made = make_toolchain(ToolchainConfig("release", both, policies=(policy, dense[0])))
    assert set(made.features) == {"inlining", "regalloc"} and made.features["regalloc"] == dense[1].features
    assert made.built["policies"] == {"inlining": digest(policy), "regalloc": digest(dense[0])}
    alone = tmp_path / "alone"
    assert set(make_toolchain(ToolchainConfig("release", alone, policies=(dense[0],))).features) == {"regalloc"}

    output, differ = tmp_path / "o", 0
    trained = (*PROBLEM.llvm.development_options, f"{PROBLEM.llvm.policy_option}={dense[0]}")
    for module in pressed_corpus:
        expected = compile_module(training_toolchain, module.bitcode, output, *trained)
        for release in (both, alone):
            assert compile_module(release, module.bitcode, output, *PROBLEM.llvm.release_options) == expected
            heuristic = compile_module(release, module.bitcode, output)
            assert heuristic == compile_module(training_toolchain, module.bitcode, output)
            differ += heuristic != expected
    assert differ >= 2
    inlining = problems.get("inlining")
    module = module_named(tiny_corpus, "strings")
    expected = compile_module(
        training_toolchain,
        module.bitcode,
        output,
        *inlining.llvm.development_options,
        f"{inlining.llvm.policy_option}={policy}",
    )
    # The training clang neither outlines nor moves constants.
    release_options = (*inlining.llvm.release_options, "-mlgo-outline=0")
    assert compile_module(both, module.bitcode, output, *release_options) == expected
    together = compile_module(both, module.bitcode, output, *release_options, *PROBLEM.llvm.release_options)
    assert together != expected
    with pytest.raises(subprocess.CalledProcessError):  # it has no inlining policy
        compile_module(alone, module.bitcode, output, *inlining.llvm.release_options)


def test_two_policies_of_one_problem_are_refused(dense: tuple[Path, DensePolicy], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="regalloc"):
        make_toolchain(ToolchainConfig("release", tmp_path / "release", policies=(dense[0], dense[0])))
    assert not list(tmp_path.iterdir())


def forced_decisions(*decisions: tuple[str, int, int]) -> ForcedDecisions:
    """Return forced decisions from tuples (function, ordinal, action)."""
    names = tuple(dict.fromkeys(name for name, _, _ in decisions))
    rows = [(names.index(name), -1, ordinal, action) for name, ordinal, action in decisions]
    return ForcedDecisions(names, np.array(rows, np.int32).reshape(-1, 4))


def one_sample(toolchain: Path, module: Module, advisor: Advisor, *decisions: tuple[str, int, int]) -> Sample:
    compiler = Compiler(toolchain / "bin" / "clang", "regalloc")
    (sample,) = compiler(Request(module, advisor, forced=(forced_decisions(*decisions),))).samples
    return sample


def test_forced_decision_is_taken_and_earlier_ones_are_unchanged(
    training_toolchain: Path, pressed_corpus: Corpus, dense: tuple[Path, DensePolicy]
) -> None:
    module = module_named(pressed_corpus, "pressed")
    bases = [
        Advisor("log"),
        Advisor("policy", dense[0], log=True),
        *(Advisor("policy", dense[0], seed=seed, log=True) for seed in (4, 5)),
    ]
    for base in bases:
        (sample,) = samples(training_toolchain, module, base)
        assert sample.log is not None
        before = {context.name: context for context in sample.log.contexts}
        mask, actions = decided(before["mix"])
        ordinal = len(actions) // 2
        for action in np.flatnonzero(mask[ordinal]).tolist():
            forced = one_sample(training_toolchain, module, base, ("mix", ordinal, action))
            assert forced.log is not None and not len(forced.unreached)
            after = {context.name: context for context in forced.log.contexts}
            _, taken = decided(after["mix"])
            assert taken[: ordinal + 1].tolist() == [*actions[:ordinal], action]
            np.testing.assert_array_equal(after["mix"].columns["mask"][: ordinal + 1], mask[: ordinal + 1, None])
            # The flip does not affect the other function, even if decisions are sampled.
            assert forced.scores["calls"] == sample.scores["calls"]
            np.testing.assert_array_equal(decided(after["calls"])[1], decided(before["calls"])[1])
            if action == actions[ordinal]:
                assert forced.scores == sample.scores


def test_flip_scores_agree_between_forks_joint_and_single_compiles(
    training_toolchain: Path, pressed_corpus: Corpus, dense: tuple[Path, DensePolicy]
) -> None:
    compiler = Compiler(training_toolchain / "bin" / "clang", "regalloc")
    module = module_named(pressed_corpus, "pressed")
    policies: list[dict[str, Any]] = [{"mode": "policy", "policy": dense[0], "seed": seed} for seed in (None, 4)]
    for policy in ({"mode": "heuristic"}, *policies):
        logged = Advisor("log") if policy["mode"] == "heuristic" else Advisor(**policy, log=True)
        (base,) = samples(training_toolchain, module, logged)
        assert base.log is not None and base.scores is not None
        plan = plan_flips(module.name, base.log, 6, seed=1)
        assert [flip.changes for flip in plan.flips] == [{0}] * 6 + [{1}] * 6
        (flips,) = plan.forced
        (forked,) = compiler(Request(module, Advisor(**policy, samples=1), flips=flips)).samples
        assert forked.scores == base.scores and forked.flip_scores is not None
        alone = []
        for function, _, ordinal, action in flips.rows.tolist():
            name = flips.names[function]
            sample = one_sample(training_toolchain, module, logged, (name, ordinal, action))
            assert sample.scores is not None
            assert {**sample.scores, name: 0} == {**base.scores, name: 0}  # no other score changes
            alone.append(sample.scores[name])
        assert forked.flip_scores.tolist() == alone
        saved = attribute_savings(module.name, base, plan, forked.flip_scores).saved
        assert saved.any()
        before = log_scores([base.scores[flips.names[i]] for i in flips.rows[:, 0]])
        np.testing.assert_allclose(saved, before - log_scores(alone))
        if policy.get("seed") is None:  # each sample has a different seed
            pairs = tuple(ForcedDecisions(flips.names, flips.rows[i::6]) for i in range(6))  # a flip of each function
            together = compiler(Request(module, Advisor(**policy, samples=6), forced=pairs)).samples
            assert all(s.log is None and s.text_size_bytes == 0 and not len(s.unreached) for s in together)
            assert [sample.scores[name] for name in flips.names for sample in together] == alone


def test_unreached_flips_have_no_score_and_masked_flips_fail_the_compile(
    training_toolchain: Path, pressed_corpus: Corpus
) -> None:
    compiler = Compiler(training_toolchain / "bin" / "clang", "regalloc")
    module, advisor = module_named(pressed_corpus, "pressed"), Advisor("heuristic", samples=1)
    flips = forced_decisions(("mix", 10**6, 0), ("elsewhere", 0, 0), ("calm", 0, 0))
    (sample,) = compiler(Request(module, advisor, flips=flips)).samples
    assert sample.flip_scores is not None and np.isnan(sample.flip_scores).all() and len(sample.flip_scores) == 3
    with pytest.raises(CompileError, match=r"(?s)mix failed.*action 33"):
        compiler(Request(module, advisor, flips=forced_decisions(("mix", 0, 33))))


def test_scores_without_log_equal_those_in_the_log(
    training_toolchain: Path, pressed_corpus: Corpus, dense: tuple[Path, DensePolicy]
) -> None:
    for module in pressed_corpus:
        unlogged = samples(training_toolchain, module, Advisor("policy", dense[0], seed=7, samples=2))
        logged = samples(training_toolchain, module, Advisor("policy", dense[0], seed=7, samples=2, log=True))
        assert [list(sample.scores.items()) for sample in unlogged] == [list(s.scores.items()) for s in logged]
        assert all(sample.log is None and sample.text_size_bytes == 0 for sample in unlogged)
        assert bool(unlogged[0].scores) == ("leaf" not in module.name)


def test_unreached_forced_decisions_are_reported(training_toolchain: Path, pressed_corpus: Corpus) -> None:
    module = module_named(pressed_corpus, "pressed")
    wrong = [("mix", 10**6, 0), ("elsewhere", 0, 0), ("calm", 0, 0)]
    for advisor in (Advisor("log"), Advisor("heuristic", samples=1)):
        assert one_sample(training_toolchain, module, advisor, *wrong).unreached.tolist() == [0, 1, 2]
    leaf = module_named(pressed_corpus, "leaf")
    assert len(one_sample(training_toolchain, leaf, Advisor("heuristic", samples=1), *wrong).unreached) == 3


def test_masked_forced_decision_fails_the_compile(training_toolchain: Path, pressed_corpus: Corpus) -> None:
    module = module_named(pressed_corpus, "pressed")
    (base,) = samples(training_toolchain, module, Advisor("log"))
    assert base.log is not None
    excluded = int(np.flatnonzero(decided(base.log.contexts[0])[0][0] == 0)[0])
    for action in (excluded, 33, 2**31 - 1):
        message = f"forced decision in mix, position {action}, is one that the mask excludes"
        with pytest.raises(CompileError, match=message):
            one_sample(training_toolchain, module, Advisor("log"), ("mix", 0, action))
        with pytest.raises(CompileError, match=message):
            one_sample(training_toolchain, module, Advisor("heuristic", samples=1), ("mix", 0, action))


CANDIDATES = """
#include "regalloc/EvictionHook.h"
#include <numeric>
#include <vector>
static MCPhysReg Registers[64];
static bool exceeds(unsigned Size, SmallVector<MCPhysReg, 16> Hints, bool Hard = false) {
  return mlgo::exceedsFeatures(AllocationOrder(std::move(Hints), ArrayRef(Registers, Size), Hard));
}
// What LLVM's advisor does first; its features have 32 columns.
struct Advisor {
  const Advisor &getDefaultAdvisor() const { return *this; }
  int tryFindEvictionCandidate(int, const AllocationOrder &, int, int) const { return 1; }
  int (getOrderLimit)(int, const AllocationOrder &, int) const { return 2; }
  int find(const AllocationOrder &Order) const {
    const int FixedRegisters = 0;
    int Limit = getOrderLimit(0, Order, 0);
    return Limit;
  }
};
int main() {
  std::iota(Registers, std::end(Registers), 1);
  const bool Fit = !exceeds(32, {}) && !exceeds(32, {5, 7}) && !exceeds(64, {5, 5, 7}, true) && !exceeds(0, {});
  const bool Exceed = exceeds(33, {}) && exceeds(64, {5}) && exceeds(32, {5, 5});
  Advisor A;
  return !(Fit && Exceed && A.find({{}, ArrayRef(Registers, 32), false}) == 2 &&
           A.find({{5, 5}, ArrayRef(Registers, 32), false}) == 1);
}
"""


def test_registers_beyond_the_features_are_left_to_the_heuristic(tmp_path: Path) -> None:
    """PowerPC has 64 vector registers, and a register that is hinted at twice is a candidate twice."""
    sdk, cache = find_sdk(19), default_cache_dir()
    private = fetch_source_files("deb", sdk, cache) / "llvm" / "lib" / "CodeGen"
    (tmp_path / "candidates.cpp").write_text(CANDIDATES)
    include = [f"-I{path}" for path in (Path(make.__file__).parent / "cpp", private, sdk.prefix / "include")]
    command: list[str | Path] = [sdk.prefix / "bin" / "clang++", "-std=c++17", "-w", *include]
    archives = [sdk.prefix / "lib" / f"libLLVM{name}.a" for name in ("Support", "Demangle")]
    subprocess.run([*command, "candidates.cpp", "-o", "candidates", *archives], cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "candidates"], check=True)
