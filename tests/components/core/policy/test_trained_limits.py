"""Beyond the values that a network was trained on, every form of a policy decides like LLVM's heuristic."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core import problems
from components.core.formats.features import FeatureSpec
from components.core.policy.agreement import compare_forms, random_decisions
from components.core.policy.dense import DensePolicy, read_dense
from components.core.policy.export import export_policy
from components.core.policy.fixed_point import round_weights
from components.core.policy.optional_features import fix_features
from components.core.policy.trained_limits import trained_limits, trained_ranges
from tests.components.toolchain.conftest import random_policy

NAMES = ("callee_users", "cost_estimate", "threshold", "callsite_height")
FEATURES = tuple(FeatureSpec(name, "int64", (1,)) for name in NAMES)
LIMITS = {"callee_users": 40, "callsite_height": -3, "cost_estimate": 250}
INLINING = problems.get("inlining")


def limited_policy() -> DensePolicy:
    return dataclasses.replace(random_policy(FEATURES), limits=LIMITS)


int64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.tuples(*[int64 | st.integers(-30, 300)] * 4), min_size=1, max_size=30))
def test_heuristic_decides_beyond_a_limit_and_the_network_within_all(rows: list[tuple[int, ...]]) -> None:
    policy, columns = limited_policy(), dict(zip(NAMES, np.array(rows, np.int64).T, strict=True))
    logits, network = policy.logits(columns), random_policy(FEATURES).logits(columns)
    for row, value, plain in zip(rows, logits, network, strict=True):
        users, cost, threshold, height = row
        if users > 40 or height > -3 or cost > 250:
            assert value.tolist() == ([-1, 1] if cost < threshold else [1, -1])
        else:
            np.testing.assert_array_equal(value, plain)


def test_all_forms_of_a_policy_have_its_limits(clang: Path, tmp_path: Path) -> None:
    export_policy(limited_policy(), tmp_path, clang)
    policy = round_weights(limited_policy())
    assert read_dense(tmp_path).limits == LIMITS
    columns = random_decisions(policy, 400, 0)
    edges = {name: np.array([limit - 1, limit, limit + 1, 2**63 - 1]) for name, limit in LIMITS.items()}
    for i, (name, values) in enumerate(edges.items()):
        for other in NAMES:
            columns[other][4 * i : 4 * i + 4] = values if other == name else -20
    beyond = (np.abs(policy.logits(columns)) == 1).all(axis=1)
    assert 0.2 < beyond.mean() < 0.8
    for agreement in compare_forms(tmp_path, policy, columns, ("native", "saved_model", "tflite")):
        assert not len(agreement.differences) and agreement.max_error < 2e-5, agreement.form


def test_limit_is_what_several_modules_reach() -> None:
    """Of 200 modules the largest values of three do not count, of 40 the largest one counts."""
    for count, expected in ((200, 196), (40, 39)):
        modules = np.repeat(np.arange(count), 2)
        values = np.stack([modules, np.zeros(2 * count, np.int64)], axis=1)[:, 0]
        columns = {name: values for name in NAMES}
        limits = trained_limits(INLINING, FEATURES, columns, modules)
        assert limits == dict.fromkeys(("callee_users", "cost_estimate", "callsite_height"), expected)


def test_ranges_are_the_extremes_of_what_no_option_sets() -> None:
    columns = {name: np.array([3, -7, 2**40]) for name in NAMES}
    ranges = trained_ranges(INLINING, FEATURES, columns)
    assert ranges == dict.fromkeys(("callee_users", "cost_estimate", "callsite_height"), (-7, 2**40))
    assert trained_ranges(problems.get("regalloc"), FEATURES, columns) == {}


@pytest.mark.parametrize(("problem", "features"), [("regalloc", FEATURES), ("inlining", FEATURES[:2])])
def test_no_limits_where_features_do_not_tell_the_heuristic(problem: str, features: tuple[FeatureSpec, ...]) -> None:
    columns = {name: np.arange(3) for name in NAMES}
    assert trained_limits(problems.get(problem), features, columns, np.zeros(3, np.int64)) == {}


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"callee_users": 2**63}, "is no int64"),
        ({"callee_users": 1.0}, "is no int64"),
        ({"nodes": 1}, "a limit of nodes"),
    ],
)
def test_invalid_limits_are_refused(limits: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(random_policy(FEATURES), limits=limits)


def test_limits_need_the_heuristics_features() -> None:
    with pytest.raises(ValueError, match="heuristic"):
        dataclasses.replace(random_policy(FEATURES[:2]), limits={"callee_users": 1})


def test_fixed_feature_has_no_limit() -> None:
    assert fix_features(limited_policy(), {"callsite_height": 0}).limits == {"callee_users": 40, "cost_estimate": 250}
