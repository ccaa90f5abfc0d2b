"""Policies in TOSA, lowered by MLIR 22 to native code, decide as their weights do."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from components.core.formats.features import FeatureSpec
from components.core.policy.dense import DensePolicy
from components.policy.llvm_build.tosa import tosa_module
from tests.components.toolchain.conftest import random_policy

_MLIR = Path("/usr/lib/llvm-22/bin")
_TO_LOOPS = (
    "builtin.module(func.func(tosa-to-linalg-named,tosa-to-linalg,tosa-to-arith,tosa-to-tensor),canonicalize,"
    "one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},"
    "convert-linalg-to-loops,canonicalize)"
)
_TO_LLVM = (
    "builtin.module(convert-scf-to-cf,expand-strided-metadata,lower-affine,convert-math-to-llvm,convert-arith-to-llvm,"
    "finalize-memref-to-llvm,func.func(llvm-request-c-wrappers),convert-func-to-llvm,convert-cf-to-llvm,"
    "reconcile-unrealized-casts)"
)

pytestmark = pytest.mark.toolchain


def features(count: int) -> tuple[FeatureSpec, ...]:
    return tuple(FeatureSpec(f"feature_{i}", "int64", (1,)) for i in range(count))


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


def lower(policy: DensePolicy, scratch: Path) -> Callable[[NDArray[np.int64]], list[int]]:
    """Return the decisions of the native code for rows of feature values, [N, F]."""
    (scratch / "policy.mlir").write_text(tosa_module(policy))
    for before, after, passes in (("policy", "loops", _TO_LOOPS), ("loops", "llvm", _TO_LLVM)):
        run(
            _MLIR / "mlir-opt", f"--pass-pipeline={passes}", scratch / f"{before}.mlir", "-o", scratch / f"{after}.mlir"
        )
    run(_MLIR / "mlir-translate", "--mlir-to-llvmir", scratch / "llvm.mlir", "-o", scratch / "policy.ll")
    library = scratch / "policy.so"
    run(_MLIR / "clang", "-O1", "-w", "-shared", scratch / "policy.ll", "-o", library, "-lm")
    action = ctypes.CDLL(str(library))._mlir_ciface_action

    def decide(rows: NDArray[np.int64]) -> list[int]:
        decisions = []
        for row in rows.tolist():
            result = _Descriptor()
            action(*map(ctypes.byref, [result, *map(_Descriptor.of, row)]))
            decisions.append(result.aligned[result.offset])
        return decisions

    return decide


class _Descriptor(ctypes.Structure):
    """A memref<i64> of MLIR's C interface."""

    _fields_ = (("allocated", ctypes.c_void_p), ("aligned", ctypes.POINTER(ctypes.c_int64)), ("offset", ctypes.c_int64))

    @classmethod
    def of(cls, value: int) -> _Descriptor:
        return cls(None, ctypes.pointer(ctypes.c_int64(value)), 0)


@pytest.mark.parametrize(("seed", "limits"), [(0, {}), (1, {}), (0, {"feature_0": 250, "threshold": 200})])
def test_decisions_are_those_of_the_weights(seed: int, limits: dict[str, int], tmp_path: Path) -> None:
    specs = features(5)
    if limits:  # beyond these LLVM's heuristic decides
        specs = (*specs[:3], replace(specs[3], name="threshold"), replace(specs[4], name="cost_estimate"))
    policy = replace(random_policy(specs, seed), limits=limits)
    rng = np.random.default_rng(seed)
    rows = np.concatenate(
        [
            rng.integers(-30, 320, (400, 5)),
            np.rint(rng.normal(size=(400, 5)) * 10.0 ** rng.integers(0, 9, (400, 5))),
            [[0] * 5, [2**31] * 5, [-(2**40)] * 5, [2**62 - 1] * 5],
        ]
    ).astype(np.int64)
    logits = policy.logits({spec.name: rows[:, i] for i, spec in enumerate(policy.features)})
    assert 0.05 < logits.argmax(1).mean() < 0.95, "the policy takes both decisions"
    decisions = np.array(lower(policy, tmp_path)(rows))
    # Sums are rounded in another order, which only decides between logits that are nearly equal.
    clear = np.abs(logits[:, 1] - logits[:, 0]) > 1e-4 * np.abs(logits).max(1)
    assert clear.mean() > 0.99
    np.testing.assert_array_equal(decisions[clear], logits.argmax(1)[clear])


def test_signature_names_the_features() -> None:
    text = tosa_module(random_policy(features(3)))
    for name in ("feature_0", "feature_1", "feature_2", "inlining_decision"):
        assert text.count(f'tf_saved_model.index_path = ["{name}"]') == 1
