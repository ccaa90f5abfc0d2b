"""The NumPy form: normalization, validation, and its file."""

import dataclasses
import gc
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.formats.features import FeatureSpec
from components.core.policy.dense import DensePolicy, read_dense, write_npz
from components.core.policy.feature_encoding import expand, quantiles
from components.platform.errors import UserError

values = st.integers(-1000, 1000)


@given(st.lists(values, min_size=1, max_size=50), st.lists(values, min_size=1, max_size=20))
def test_a_quantile_is_the_share_of_boundaries_not_above_the_value(boundaries, xs):
    buckets = {"f": np.sort(np.array(boundaries, np.float64))}
    q = quantiles([FeatureSpec("f", "int64")], buckets, {"f": np.array(xs)})
    expected = [sum(b <= x for b in boundaries) / len(boundaries) for x in xs]
    np.testing.assert_allclose(q[:, 0], expected, rtol=1e-7)


def test_expansion_holds_q_then_roots_then_squares_then_action_ranks():
    x = expand(np.array([[0.25, 1.0, -0.5, 3.0]], np.float32), masked=True)
    np.testing.assert_array_equal(x, [[0.25, 1.0, 0.5, 1.0, 0.0625, 1.0, -0.5, 3.0]])


def test_logits_of_a_network_computed_by_hand():
    """One feature, q = 1/4: relu(-q, q) = (0, 1/4), times (8, 4), plus biases."""
    layers = (
        (np.array([[-1, 1], [0, 0]], np.float32), np.array([0, 0], np.float32)),
        (np.array([[1, 0], [8, 4]], np.float32), np.array([1, -1], np.float32)),
    )
    policy = DensePolicy("inlining", (FeatureSpec("f", "int64"),), {"f": np.array([0.0, 5, 6, 7])}, layers)
    np.testing.assert_array_equal(policy.logits({"f": np.array([3])}), [[3.0, 0.0]])


def test_error_names_a_missing_column(make_policy):
    policy, columns = make_policy()
    del columns["cost"]
    with pytest.raises(UserError, match="cost"):
        policy.logits(columns)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"buckets": {}}, "no boundaries for feature constant"),
        ({"buckets": {"constant": np.array([1.0, 0.0])}}, "boundaries of constant"),
        ({"features": (FeatureSpec("constant", "int64", (33,)), FeatureSpec("flag", "int64"))}, "must follow"),
        ({"features": (FeatureSpec("constant", "int64"), FeatureSpec("e", "float32", (3,)))}, "expected 5 inputs"),
        ({"layers": ((np.ones((5, 2), np.float32), np.ones(2, np.float32)),)}, "expected 16 inputs"),
        ({"layers": ((np.full((16, 2), np.nan, np.float32), np.ones(2, np.float32)),)}, "not finite"),
        ({"layers": ((np.ones((16, 2)), np.ones(2)),)}, "float64, expected float32"),
    ],
)
def test_invariants_are_checked(make_policy, change, message):
    policy, _ = make_policy()
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(policy, **change)


def test_saved_policy_is_read_back(make_policy, tmp_path):
    policy, columns = make_policy(hidden=(5, 3))
    policy.save(tmp_path)
    again = read_dense(tmp_path)
    assert (again.problem, again.features) == (policy.problem, policy.features)
    np.testing.assert_array_equal(again.logits(columns), policy.logits(columns))


def test_a_directory_without_weights_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"no weights\.npz"):
        read_dense(tmp_path)


@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.99])
def test_a_truncated_file_is_refused(make_policy, tmp_path, keep):
    path = make_policy()[0].save(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[: keep if isinstance(keep, int) else int(keep * len(content))])
    with pytest.raises(UserError, match="damaged"):
        read_dense(tmp_path)


def test_a_full_disk_is_reported_once(monkeypatch):
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    with pytest.raises(OSError, match="No space"):
        write_npz(Path("/dev/full"), weights=np.zeros(1000))
    gc.collect()
    assert unraisable == []
