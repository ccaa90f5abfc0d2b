"""The training clang runs TensorFlow Lite models: ours, and those that ml-compiler-opt's trainer writes.

The untrained policies in ml_compiler_opt/ were written by google/ml-compiler-opt's tools/generate_test_model.py
(d57d79b) with its ppo_nn_agent.gin, layers of 8 and 4 units, `with_sqrt`, for inlining also
`with_z_score_normalization`, and nine quantiles of each feature.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from components.core import problems
from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import CompileError, Compiler, Request
from components.core.compiler.logs.training_log import TrainingLog
from components.core.formats.corpus import Corpus
from components.core.formats.toolchain import load_toolchain
from components.core.policy.export import export_fast
from components.core.policy.tf.saved_model import write_saved_model
from tests.components.toolchain.conftest import random_policy

pytestmark = pytest.mark.toolchain

POLICIES = Path(__file__).parent / "ml_compiler_opt"
GREEDY = POLICIES / "inlining/saved_policy"
COLLECT = POLICIES / "inlining/saved_collect_policy"
EVICTION = POLICIES / "regalloc/saved_collect_policy"
FILES = ("model.tflite", "output_spec.json")
CLEAR_ERROR = "error: policy: "
ROUNDS = int(os.environ.get("MLGO_ATTACK_ROUNDS", "1"))

Compile = Callable[..., TrainingLog]


@pytest.fixture
def compile_with(training_toolchain: Path, tiny_corpus: Corpus, pressed_corpus: Corpus) -> Compile:
    """Return a function that compiles a module of a problem with a policy, and returns the log."""

    def compile_module(policy: Path, problem: str = "inlining", seed: int | None = None) -> TrainingLog:
        corpus, name = (tiny_corpus, "strings") if problem == "inlining" else (pressed_corpus, "pressed")
        (module,) = (module for module in corpus if name in module.name)
        compiler = Compiler(load_toolchain(training_toolchain).clang, problem)
        (sample,) = compiler(Request(module, Advisor("policy", policy=policy, seed=seed, log=True))).samples
        assert sample.log
        return sample.log

    return compile_module


def copied(policy: Path, directory: Path) -> Path:
    """Return `directory` with what a training clang reads of a policy."""
    directory.mkdir(exist_ok=True)
    for name in FILES:
        (directory / name).write_bytes((policy / name).read_bytes())
    return directory


def decisions(log: TrainingLog, problem: str = "inlining") -> list[int]:
    column = problems.get(problem).policy.decision
    return [int(action) for context in log.contexts for action in context.columns[column].ravel()]


def outputs_of_tensorflow(policy: Path, log: TrainingLog) -> Iterator[tuple[str, Any, Any]]:
    """Yield each output, as TensorFlow Lite computes it from the features of a log, next to what the log has."""
    import tensorflow as tf

    interpreter = tf.lite.Interpreter(str(policy / "model.tflite"))
    interpreter.allocate_tensors()
    indices = {output["name"]: output["index"] for output in interpreter.get_output_details()}
    outputs = json.loads((policy / "output_spec.json").read_text())
    for context in log.contexts:
        for number in range(len(context)):
            for tensor in interpreter.get_input_details():
                feature = tensor["name"].removeprefix("action_").partition(":")[0]
                if feature in context.columns:
                    values = context.columns[feature][number].reshape(tensor["shape"])
                    interpreter.set_tensor(tensor["index"], values)
            interpreter.invoke()
            for output in outputs:
                name, spec = output["logging_name"], output["tensor_spec"]
                computed = interpreter.get_tensor(indices[f"{spec['name']}:{spec['port']}"])
                yield name, computed.ravel(), context.columns[name][number].ravel()


@pytest.mark.tf
@pytest.mark.parametrize(("policy", "problem"), [(GREEDY, "inlining"), (COLLECT, "inlining"), (EVICTION, "regalloc")])
def test_policy_of_ml_compiler_opt_decides_as_in_tensorflow(compile_with: Compile, policy: Path, problem: str) -> None:
    log = compile_with(policy, problem)
    decision = problems.get(problem).policy.decision
    checked = 0
    for name, computed, logged in outputs_of_tensorflow(policy, log):
        if name != decision:
            sane = computed > -1e30  # not masked
            np.testing.assert_allclose(logged[sane], computed[sane], atol=1e-5)
            assert (logged[~sane] <= -1e30).all()
        elif policy == GREEDY:
            assert logged == computed
        else:  # drawn from the logits
            continue
        checked += 1
    assert checked > 4
    assert log.features[-1].name == decision


def test_random_decisions_repeat_with_a_seed_only(compile_with: Compile) -> None:
    first, same, other = (decisions(compile_with(COLLECT, seed=seed)) for seed in (3, 3, 4))
    assert first == same and {0, 1} == {*first, *other}
    several = {tuple(decisions(compile_with(COLLECT))) for _run in range(6)}
    assert len(several) > 1
    first, same = (decisions(compile_with(EVICTION, "regalloc", seed=3), "regalloc") for _run in range(2))
    assert first == same and len({*first}) > 1


def test_samples_of_a_compile_differ(training_toolchain: Path, tiny_corpus: Corpus, pressed_corpus: Corpus) -> None:
    for problem, corpus, policy, name in (
        ("inlining", tiny_corpus, COLLECT, "strings"),
        ("regalloc", pressed_corpus, EVICTION, "pressed"),
    ):
        (module,) = (module for module in corpus if name in module.name)
        compiler = Compiler(load_toolchain(training_toolchain).clang, problem)
        advisor = Advisor("policy", policy=policy, seed=3, samples=3, log=True)
        samples = [sample.log for sample in compiler(Request(module, advisor)).samples if sample.log]
        assert len({tuple(decisions(log, problem)) for log in samples}) == 3


@pytest.mark.tf
@pytest.mark.parametrize("position", [-1, 33, 10**9])
def test_eviction_from_a_position_that_does_not_exist_is_an_error(
    compile_with: Compile, tmp_path: Path, position: int
) -> None:
    import tensorflow as tf

    class Constant(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec((1, 33), tf.int64, "mask")])
        def action(self, mask: Any) -> dict[str, Any]:
            return {"index": 0 * tf.reduce_sum(mask, 1) + position}

    module = Constant()
    tf.saved_model.save(module, str(tmp_path / "saved"), {"action": module.action})
    converter = tf.lite.TFLiteConverter.from_saved_model(str(tmp_path / "saved"), signature_keys=["action"])
    (tmp_path / "model.tflite").write_bytes(converter.convert())
    output = {"name": "PartitionedCall", "port": 0, "type": "int64_t", "shape": [1]}
    spec = [{"logging_name": "index_to_evict", "tensor_spec": output}]
    (tmp_path / "output_spec.json").write_text(json.dumps(spec))
    assert f"evicts from position {position}, which does not exist" in refusal(compile_with, tmp_path, "regalloc")


@pytest.mark.tf
def test_our_model_decides_as_our_shared_object(
    compile_with: Compile, training_toolchain: Path, tmp_path: Path
) -> None:
    toolchain = load_toolchain(training_toolchain)
    dense = random_policy(toolchain.features["inlining"], seed=2)
    export_fast(dense, tmp_path, toolchain.clang)
    write_saved_model(dense, tmp_path)
    lite = compile_with(copied(tmp_path, tmp_path / "lite"))
    native = compile_with(tmp_path)
    logits = problems.get("inlining").policy.logits
    assert decisions(lite) == decisions(native) and {0, 1} == {*decisions(lite)}
    for context, other in zip(lite.contexts, native.contexts, strict=True):
        np.testing.assert_allclose(context.columns[logits], other.columns[logits], rtol=1e-4, atol=1e-3)


def refusal(compile_with: Compile, policy: Path, problem: str = "inlining") -> str:
    with pytest.raises(CompileError) as caught:
        compile_with(policy, problem)
    return str(caught.value)


def test_policy_without_a_file_that_clang_reads_is_refused(compile_with: Compile, tmp_path: Path) -> None:
    (tmp_path / "output_spec.json").write_bytes((GREEDY / "output_spec.json").read_bytes())
    assert "has neither policy.so nor model.tflite" in refusal(compile_with, tmp_path)
    (tmp_path / "saved_model.pb").touch()
    assert "has a SavedModel only; convert it to model.tflite" in refusal(compile_with, tmp_path)


def test_model_with_a_feature_that_clang_does_not_log_is_refused(compile_with: Compile, tmp_path: Path) -> None:
    policy = copied(GREEDY, tmp_path)
    model = policy / "model.tflite"
    model.write_bytes(model.read_bytes().replace(b"action_callee_users", b"action_callee_sinks"))
    assert "features that this compiler does not log" in refusal(compile_with, policy)
    assert "callee_sinks" in refusal(compile_with, policy)


def test_output_that_the_model_does_not_have_is_refused(compile_with: Compile, tmp_path: Path) -> None:
    policy = copied(COLLECT, tmp_path)
    spec = policy / "output_spec.json"
    outputs = json.loads(spec.read_text())
    outputs[1]["tensor_spec"]["port"] = 7
    spec.write_text(json.dumps(outputs))
    assert "has no output StatefulPartitionedCall:7" in refusal(compile_with, policy)


def test_model_of_another_problem_is_refused(compile_with: Compile) -> None:
    assert "must begin with the decision inlining_decision" in refusal(compile_with, EVICTION)
    assert "must have the logging_name index_to_evict" in refusal(compile_with, GREEDY, "regalloc")


@pytest.mark.parametrize("content", [b"", b"no model", b"\0\0\0\0TFL3", b"\xff\xff\xff\xffTFL3" + b"\xff" * 64])
def test_file_that_is_no_model_is_refused(compile_with: Compile, tmp_path: Path, content: bytes) -> None:
    policy = copied(GREEDY, tmp_path)
    (policy / "model.tflite").write_bytes(content)
    assert CLEAR_ERROR in refusal(compile_with, policy)


@pytest.mark.attack
@pytest.mark.parametrize("policy", [GREEDY, EVICTION], ids=["inlining", "regalloc"])
def test_damaged_model_is_an_error_or_a_policy(training_toolchain: Path, policy: Path, tmp_path: Path) -> None:
    """Damaged weights are weights; damage elsewhere is reported. The compiler does not die of it."""
    rng = random.Random(policy.parent.name)
    source = tmp_path / "a.c"
    source.write_text("static int f(int x) { return x * 3; }\nint g(int x) { return f(x) + f(x + 1); }\n")
    definition = problems.get(policy.parent.name).llvm
    directory = copied(policy, tmp_path / "policy")
    whole = (policy / "model.tflite").read_bytes()
    options = (*definition.development_options, f"{definition.policy_option}={directory}")
    flags = [flag for option in options for flag in ("-mllvm", option)]
    clang = load_toolchain(training_toolchain).clang
    refused = 0
    for _round in range(12 * ROUNDS):
        damaged = bytearray(whole)
        if rng.random() < 0.3:
            del damaged[rng.randrange(len(whole)) :]
        for _byte in range(rng.choice((1, 30, 1000))):
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 127, 255, rng.randrange(256)))
        (directory / "model.tflite").write_bytes(damaged)
        command: list[str | Path] = [clang, "-O2", "-c", source, "-o", tmp_path / "a.o", *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode in (0, 1), done.stderr[-2000:]
        refused += done.returncode == 1
        if done.returncode == 1:
            assert CLEAR_ERROR in done.stderr, done.stderr[-2000:]
    assert refused, "no damage was found"


@pytest.mark.parametrize(
    ("option", "mode"),
    [
        ("-ml-inliner-model-under-training=/p", "-enable-ml-inliner=development"),
        ("-regalloc-model=/p", "-regalloc-enable-advisor=development"),
    ],
)
def test_policy_without_its_mode_is_a_warning(training_toolchain: Path, tmp_path: Path, option: str, mode: str) -> None:
    (tmp_path / "a.c").write_text("int x;\n")
    clang = load_toolchain(training_toolchain).clang
    command: list[str | Path] = [clang, "-c", tmp_path / "a.c", "-o", tmp_path / "a.o", "-mllvm", option]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and f"the policy has no effect without -mllvm {mode}" in done.stderr
