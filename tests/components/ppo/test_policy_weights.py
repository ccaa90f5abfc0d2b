"""Blending and softening of policies, and the form that the compiler takes."""

import numpy as np
import pytest

from components.core.formats.features import FeatureSpec
from components.core.policy.dense import DensePolicy
from components.core.policy.feature_encoding import inputs_per_feature
from components.ppo.policy_weights import calibrate_entropy, compiled_policy, ema_update, mean_policy


def policy(scale=1.0):
    random = np.random.default_rng(0)
    sizes = [2 * inputs_per_feature(masked=False), 8, 2]
    layers = tuple(
        (random.normal(0, scale, (a, b)).astype(np.float32), random.normal(0, 1, b).astype(np.float32))
        for a, b in ((sizes[0], sizes[1]), (sizes[1], sizes[2]))
    )
    features = (FeatureSpec("f", "int64"), FeatureSpec("g", "int64"))
    return DensePolicy("inlining", features, {"f": np.arange(4.0), "g": np.arange(9.0)}, layers)


def entropy(policy, inputs):
    logits = policy.logits_of_inputs(inputs).astype(np.float64)
    margin = np.abs(logits[:, 0] - logits[:, 1])  # of two actions, the entropy is a function of it
    other = 1 / (1 + np.exp(np.minimum(margin, 700)))
    return float(-((1 - other) * np.log1p(-other) + other * np.log(other)).mean())


@pytest.fixture
def inputs():
    return np.random.default_rng(1).random((500, 4), np.float32)


def test_mean_policy_has_the_mean_of_all_weights():
    ones, twos = policy(), policy(scale=2)
    mean = mean_policy([ones, twos, twos])
    for (weights, biases), (w, b), (v, c) in zip(mean.layers, ones.layers, twos.layers, strict=True):
        assert weights.dtype == biases.dtype == np.float32
        np.testing.assert_allclose(weights, (w + 2 * v) / 3, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(biases, (b + 2 * c) / 3, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(mean_policy([ones]).layers[0][0], ones.layers[0][0])


def test_calibrated_policy_has_the_entropy_and_the_same_decisions(inputs):
    sharp = policy(scale=20)
    assert entropy(sharp, inputs) < 0.05
    soft = calibrate_entropy(sharp, inputs, 0.2)
    assert entropy(soft, inputs) == pytest.approx(0.2, rel=1e-3)
    before, after = (p.logits_of_inputs(inputs).argmax(1) for p in (sharp, soft))
    np.testing.assert_array_equal(before, after)


def test_policy_with_enough_entropy_is_not_changed(inputs):
    unsure = policy(scale=0.1)
    assert calibrate_entropy(unsure, inputs, 0.2) is unsure


def test_ema_update_is_a_weighted_mean():
    one, two = policy(1), policy(3)
    (mixed, _), *_ = ema_update(one, two, 0.75).layers
    np.testing.assert_allclose(mixed, 0.75 * one.layers[0][0] + 0.25 * two.layers[0][0], rtol=1e-6)
    assert mixed.dtype == np.float32


def test_compiled_policy_is_removed_afterwards(clang):
    with compiled_policy(policy(), clang) as directory:
        assert {"policy.so", "output_spec.json"} <= {path.name for path in directory.iterdir()}
    assert not directory.exists()
