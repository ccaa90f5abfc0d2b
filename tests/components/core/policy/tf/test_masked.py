"""Policies that score each allowed action by its own features: all forms agree, none takes an excluded action."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import numpy as np
import pytest

from components.core.formats.features import FeatureSpec
from components.core.formats.trace import ModuleTrace, TraceWriter
from components.core.policy.agreement import compare_to_reference
from components.core.policy.dense import DensePolicy, read_dense
from components.core.policy.export import export_fast, export_policy
from components.core.policy.feature_encoding import quantiles
from components.core.policy.generated.codegen import generate, word_offsets
from components.core.policy.generated.native_policy import NativePolicy
from components.core.policy.optional_features import fix_features
from components.platform.storage import publish
from components.policy.compare import compare

ACTIONS = 33
SHAPE = (1, ACTIONS)
FEATURES = (
    FeatureSpec("weight", "float32", SHAPE),
    FeatureSpec("mask", "int64", SHAPE),
    FeatureSpec("stage", "int64", SHAPE),
    FeatureSpec("progress", "float32"),
)

LLVM_DRIVER = r"""
#include "policy.h"
#include "llvm/Analysis/ReleaseModeModelRunner.h"
#include <cstdio>
using namespace llvm;
int main() {
  LLVMContext context;
  // The compiler's order, and a feature that the policy does not know.
  std::vector<TensorSpec> specs{
      TensorSpec::createSpec<int64_t>("mask", {1, 33}), TensorSpec::createSpec<int64_t>("unknown", {1, 33}),
      TensorSpec::createSpec<float>("weight", {1, 33}), TensorSpec::createSpec<int64_t>("stage", {1, 33}),
      TensorSpec::createSpec<float>("progress", {1})};
  ReleaseModeModelRunner<RegAllocEvictModel> runner(context, specs, "index_to_evict");
  while (true) {
    for (size_t i = 0; i < specs.size(); ++i)
      if (std::fread(runner.getTensorUntyped(i), specs[i].getTotalTensorBufferSize(), 1, stdin) != 1)
        return 0;
    std::printf("%lld\n", (long long)runner.evaluate<int64_t>());
  }
}
"""


@pytest.fixture(scope="module")
def columns() -> dict[str, np.ndarray]:
    """Return 400 decisions with one to all actions allowed and some weights NaN or infinite."""
    rng = np.random.default_rng(3)
    allowed = rng.random((400, *SHAPE)) < rng.random((400, 1, 1))
    allowed[np.arange(400), 0, rng.integers(0, ACTIONS, 400)] = True
    weight = rng.exponential(1, (400, *SHAPE)).astype(np.float32)
    for special in (np.nan, np.inf, -np.inf):
        weight[rng.random(weight.shape) < 0.05] = special
    return {
        "weight": weight,
        "mask": allowed.astype(np.int64),
        "stage": rng.integers(0, 7, (400, *SHAPE)),
        "progress": rng.random((400, 1), np.float32),
    }


@pytest.fixture(scope="module")
def policy(columns: dict[str, np.ndarray]) -> DensePolicy:
    rng = np.random.default_rng(4)
    names = [f.name for f in FEATURES if f.name != "mask"]
    buckets = {
        name: np.sort(rng.choice(columns[name][np.isfinite(columns[name])], 1000)).astype(np.float64) for name in names
    }
    layers = tuple(
        (rng.normal(size=(a, b)).astype(np.float32), rng.normal(size=b).astype(np.float32))
        for a, b in itertools.pairwise([4 * len(names), 24, 10, 1])
    )
    return DensePolicy("regalloc", FEATURES, buckets, layers)


def test_an_action_is_scored_by_its_own_features(policy: DensePolicy, columns: dict[str, np.ndarray]) -> None:
    logits = policy.logits(columns)
    allowed = columns["mask"].reshape(-1, ACTIONS) != 0
    assert logits.shape == (400, ACTIONS) and policy.num_actions == ACTIONS
    np.testing.assert_array_equal(np.isneginf(logits), ~allowed)
    # Permuted columns give the same scores, permuted alike. A scalar feature applies to all actions.
    order = np.random.default_rng(5).permutation(ACTIONS)
    permuted = {name: c if c.shape[-1] == 1 else c[:, :, order] for name, c in columns.items()}
    # How matrix products round depends on the processor and on the place of a column.
    np.testing.assert_allclose(policy.logits(permuted), logits[:, order], rtol=1e-5, atol=1e-5)
    without_progress = {**columns, "progress": np.zeros_like(columns["progress"])}
    assert (policy.logits(without_progress) != logits)[allowed].any()


def test_scalar_feature_can_be_fixed(policy: DensePolicy, columns: dict[str, np.ndarray]) -> None:
    fixed = fix_features(policy, {"progress": 0.25})
    assert [spec.name for spec in fixed.features] == ["weight", "mask", "stage"]
    assumed = columns | {"progress": np.full_like(columns["progress"], 0.25)}
    np.testing.assert_allclose(fixed.logits(columns), policy.logits(assumed), atol=1e-4)


def test_nan_is_above_all_numbers(policy: DensePolicy) -> None:
    columns = {"weight": np.array([[np.nan, np.inf, -np.inf]], np.float32)}
    q = quantiles([FeatureSpec("weight", "float32", (1, 3))], policy.buckets, columns)
    np.testing.assert_array_equal(q.ravel(), [1, 1, 0])


def test_native_policy_agrees(policy: DensePolicy, columns: dict[str, np.ndarray], clang: Path, tmp_path: Path) -> None:
    export_fast(policy, tmp_path, clang)
    native = NativePolicy(tmp_path)
    assert (native.features, native.num_actions, native.problem) == (FEATURES, ACTIONS, "regalloc")
    expected, logits = policy.logits(columns), native.logits(columns)
    np.testing.assert_array_equal(np.isneginf(logits), np.isneginf(expected))
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)


def test_saved_weights_agree(policy: DensePolicy, columns: dict[str, np.ndarray], tmp_path: Path) -> None:
    policy.save(tmp_path)
    np.testing.assert_array_equal(read_dense(tmp_path).logits(columns), policy.logits(columns))


@pytest.mark.tf
def test_all_forms_agree_on_a_trace(
    policy: DensePolicy, columns: dict[str, np.ndarray], clang: Path, tmp_path: Path
) -> None:
    """All forms include the SavedModel and the TensorFlow Lite model; the decisions are read from a trace."""
    action = policy.logits(columns).argmax(axis=1)
    zeros = np.zeros(400, np.int32)
    with publish(tmp_path / "trace", "trace") as partial:
        writer = TraceWriter(partial, "regalloc", "index_to_evict", FEATURES)
        step = np.arange(400, dtype=np.int32)
        writer.add(ModuleTrace("m", None, 0.0, ["f"], zeros, step, [], None, None, columns, action, 3.0))
        writer.close("", "")
    with publish(tmp_path / "policy", "policy") as partial:
        export_policy(policy, partial, clang)
    agreements = compare(tmp_path / "policy", tmp_path / "trace", limit=100)
    assert {a.form for a in agreements} == {"generated C++", "SavedModel", "TensorFlow Lite"}
    for agreement in agreements:
        assert agreement.decisions == 100 and not len(agreement.differences), agreement
        assert agreement.max_error < 1e-4


def test_a_form_that_ignores_the_mask_does_not_agree(policy: DensePolicy, columns: dict[str, np.ndarray]) -> None:
    reference = policy.logits(columns)
    assert compare_to_reference("same", reference, reference.copy()).max_error == 0
    wrong = compare_to_reference("wrong", reference, policy.logits_of_inputs(policy.inputs(columns)))
    assert len(wrong.differences) > 20 and np.isinf(wrong.max_error)


@pytest.mark.tf
def test_llvms_release_mode_runs_the_class(policy: DensePolicy, columns: dict[str, np.ndarray], tmp_path: Path) -> None:
    generate(policy, tmp_path)
    (tmp_path / "driver.cpp").write_text(LLVM_DRIVER)
    flags = subprocess.run(["llvm-config-19", "--cxxflags"], check=True, capture_output=True, text=True).stdout.split()
    library = subprocess.run(["llvm-config-19", "--ldflags", "--libs"], check=True, capture_output=True, text=True)
    sources = [tmp_path / "driver.cpp", tmp_path / "policy.cpp"]
    program = tmp_path / "driver"
    command: list[str | Path] = [
        "clang++-19",
        *flags,
        f"-I{tmp_path}",
        *sources,
        *library.stdout.split(),
        "-o",
        program,
    ]
    subprocess.run(command, check=True)
    unknown = np.full((1, ACTIONS), -1)
    rows = b"".join(
        array.tobytes()
        for i in range(400)
        for array in (
            columns["mask"][i],
            unknown,
            columns["weight"][i],
            columns["stage"][i],
            columns["progress"][i],
        )
    )
    printed = subprocess.run([program], input=rows, check=True, capture_output=True).stdout.split()
    # Actions with the same features differ by rounding only, so another one of the best may be taken.
    logits = policy.logits(columns)
    assert len(printed) == len(logits)
    chosen_logits = np.take_along_axis(logits, np.array(printed, int)[:, None], axis=1)[:, 0]
    np.testing.assert_allclose(chosen_logits, logits.max(axis=1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("features", "outputs", "message"),
    [
        (FEATURES, 2, "scores one action"),
        ((FEATURES[0], FEATURES[2]), 1, "the mask mask is not among the features"),
        ((FeatureSpec("weight", "float32", (1, 7)), FEATURES[1]), 1, "only scalars and tensors of 33"),
    ],
)
def test_invariants_are_checked(
    policy: DensePolicy, features: tuple[FeatureSpec, ...], outputs: int, message: str
) -> None:
    inputs = 4 * sum(f.name != "mask" for f in features)
    layer = (np.zeros((inputs, outputs), np.float32), np.zeros(outputs, np.float32))
    with pytest.raises(ValueError, match=message):
        DensePolicy("regalloc", features, policy.buckets, (layer,))


def test_features_start_at_whole_words() -> None:
    assert word_offsets(FEATURES) == [0, 17, 50, 83, 84]
