"""Inputs of a policy's layers: quantiles, magnitudes, and ranks among the allowed actions of a decision."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as numbers

from components.core.formats.features import FeatureSpec
from components.core.policy.feature_encoding import (
    MAGNITUDE_SCALE,
    action_ranks,
    expand,
    inputs_per_feature,
    invert_magnitudes,
    layer_inputs,
    magnitudes,
)

ACTIONS = 5
WEIGHT = FeatureSpec("weight", "float32", (1, ACTIONS))
STAGE = FeatureSpec("stage", "int64", (1, ACTIONS))
PROGRESS = FeatureSpec("progress", "float32")
MASK = FeatureSpec("mask", "int64", (1, ACTIONS))


def test_an_action_rank_is_the_share_of_allowed_actions_whose_value_is_less() -> None:
    columns = {
        "weight": np.array([[[3, 1, np.nan, 1, -9]], [[0, 0, 0, 0, np.inf]]], np.float32),
        "stage": np.array([[[2, 1, 1, 0, 9]], [[5, 4, 3, 2, 1]]]),
        "progress": np.array([[0.5], [0.25]], np.float32),
    }
    allowed = np.array([[1, 1, 1, 1, 0], [1, 1, 0, 0, 1]], bool)
    ranks = action_ranks([WEIGHT, STAGE, PROGRESS], columns, allowed)
    assert ranks.dtype == np.float32 and ranks.shape == (2, ACTIONS, 3)
    np.testing.assert_array_equal(ranks[0, :4, 0], [0.5, 0, 0.75, 0])  # the -9 is not allowed; NaN is above all
    np.testing.assert_array_equal(ranks[0, :4, 1], [0.75, 0.25, 0.25, 0])
    np.testing.assert_array_equal(ranks[1, [0, 1, 4], 0], np.array([0, 0, 2 / 3], np.float32))
    assert not ranks[..., 2].any()  # all actions share a scalar


@given(
    numbers.arrays(np.float32, (6, ACTIONS), elements=st.floats(width=32)),
    numbers.arrays(np.bool_, (6, ACTIONS)),
    st.permutations(range(ACTIONS)),
)
def test_action_ranks_ignore_position_and_scale(values: np.ndarray, allowed: np.ndarray, order: list[int]) -> None:
    def ranks_of(weights: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return action_ranks([WEIGHT], {"weight": weights[:, None]}, mask)[..., 0]

    ranks = ranks_of(values, allowed)
    assert ((ranks >= 0) & (ranks <= 1)).all()
    np.testing.assert_array_equal(ranks_of(values[:, order], allowed[:, order]), ranks[:, order])
    value_order = np.unique(np.where(np.isnan(values), np.inf, values), return_inverse=True)[1].reshape(values.shape)
    np.testing.assert_array_equal(ranks_of(value_order.astype(np.float32), allowed), ranks)
    lowest = np.where(allowed, np.where(np.isnan(values), np.inf, values), np.inf).min(axis=1, keepdims=True)
    assert (ranks[allowed & (values == lowest)] == 0).all()


def test_layers_with_a_mask_get_quantiles_and_action_ranks() -> None:
    columns = {"weight": np.array([[[1, 2, 3, 4, 5]]], np.float32), "mask": np.array([[[1, 1, 1, 0, 1]]])}
    buckets = {"weight": np.array([2.0, 3.0])}
    inputs = layer_inputs([WEIGHT], buckets, columns, MASK)
    np.testing.assert_array_equal(inputs[0, :, 0], [0, 0.5, 1, 1, 1])
    np.testing.assert_array_equal(inputs[0, [0, 1, 2, 4], 1], [0, 0.25, 0.5, 0.75])
    expanded = expand(inputs, masked=True)
    assert expanded.shape == (1, ACTIONS, inputs_per_feature(masked=True))
    np.testing.assert_array_equal(expanded[0, 1], np.array([0.5, 0.5**0.5, 0.25, 0.25], np.float32))


def test_layers_without_a_mask_get_quantiles_and_magnitudes() -> None:
    plain = layer_inputs([PROGRESS], {"progress": np.array([1.0])}, {"progress": np.full((1, 1), 3.0)}, None)
    np.testing.assert_array_equal(plain, [[1.0, 2 * MAGNITUDE_SCALE]])
    assert expand(plain, masked=False).shape == (1, inputs_per_feature(masked=False))


@given(st.lists(st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-100, 100)), min_size=1, max_size=30))
def test_magnitudes_are_odd_monotonic_and_close_to_a_logarithm(values: list[int]) -> None:
    spec = FeatureSpec("count", "int64")
    ordered = np.sort(np.array(values, np.int64))
    encoded = magnitudes([spec], {"count": ordered})[:, 0]
    assert encoded.dtype == np.float32 and (np.diff(encoded) >= 0).all()
    exact = np.sign(ordered) * np.log2(1 + np.abs(ordered.astype(np.float64))) * MAGNITUDE_SCALE
    np.testing.assert_allclose(encoded, exact, atol=0.09 * MAGNITUDE_SCALE)
    negated = magnitudes([spec], {"count": -ordered.astype(np.float64)})[:, 0]
    np.testing.assert_array_equal(negated, -encoded)
    np.testing.assert_allclose(invert_magnitudes(encoded), ordered, rtol=1e-4, atol=1e-3)


@given(st.floats(width=32))
def test_every_float_has_a_finite_magnitude(value: float) -> None:
    encoded = magnitudes([PROGRESS], {"progress": np.array([[value]], np.float32)})
    assert np.isfinite(encoded).all() and (value == value or encoded[0, 0] == 0)
