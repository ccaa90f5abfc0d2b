"""Networks of a problem with a mask are the same function as the policy's plain arrays, whatever is excluded."""

import numpy as np
import pytest
import tensorflow as tf

from components.core import problems
from components.core.console import UserError
from components.core.formats.features import FeatureSpec
from components.core.policy import networks
from components.core.policy.observation import EXCLUDED, finite, logits, observation_shape, observations

pytestmark = pytest.mark.usefixtures("fresh_gin")

ACTIONS = 33
PROBLEM = problems.get("regalloc")
FEATURES = (
    FeatureSpec("weight", "float32", (1, ACTIONS)),
    FeatureSpec("mask", "int64", (1, ACTIONS)),
    FeatureSpec("stage", "int64", (1, ACTIONS)),
    FeatureSpec("progress", "float32"),
)
VOCAB = {"weight": np.linspace(0, 1, 1000), "stage": np.arange(7.0), "progress": np.linspace(0, 1, 1000)}
DECISIONS = 60


@pytest.fixture
def columns():
    rng = np.random.default_rng(1)
    mask = rng.integers(0, 2, (DECISIONS, 1, ACTIONS))
    mask[0] = 0
    mask[np.arange(DECISIONS), 0, rng.integers(0, ACTIONS, DECISIONS)] = 1  # of the first one, nothing else
    return {
        "weight": rng.random((DECISIONS, 1, ACTIONS), np.float32),
        "mask": mask,
        "stage": rng.integers(0, 7, (DECISIONS, 1, ACTIONS)),
        "progress": rng.random((DECISIONS, 1), np.float32),
    }


def actor(**parameters):
    parameters = {"fc_layer_params": (8, 6), **parameters}
    made = networks.actor_network(3, ACTIONS, masked=True, **parameters)
    for layer in networks.dense_layers(made):  # larger than they begin, so that logits differ
        layer.bias.assign(np.random.default_rng(2).normal(size=layer.bias.shape))
    return made


def test_arrays_of_a_network_give_its_logits(columns):
    made = actor()
    dense = networks.to_dense(made, VOCAB, FEATURES, "regalloc")
    assert [w.shape for w, _ in dense.layers] == [(12, 8), (8, 6), (6, 1)]
    seen = observations(PROBLEM, FEATURES, VOCAB, columns)
    assert seen.dtype == np.float32 and seen.shape == (DECISIONS, *observation_shape(PROBLEM, FEATURES))
    expected = dense.logits(columns)
    np.testing.assert_allclose(networks.logits(made, seen), finite(expected), atol=1e-5)
    np.testing.assert_array_equal(logits(dense, seen), finite(expected))


def test_arrays_loaded_into_another_network_give_the_same_logits(columns):
    dense = networks.to_dense(actor(), VOCAB, FEATURES, "regalloc")
    other = networks.actor_network(3, ACTIONS, masked=True, fc_layer_params=(8, 6))
    seen = observations(PROBLEM, FEATURES, VOCAB, columns)
    assert np.abs(networks.logits(other, seen) - logits(dense, seen)).max() > 0.01
    networks.load_dense(other, dense)
    np.testing.assert_allclose(networks.logits(other, seen), logits(dense, seen), atol=1e-5)
    with pytest.raises(UserError, match=r"\(12, 8\).*\(12, 9\)"):
        networks.load_dense(actor(fc_layer_params=(9, 6)), dense)


def test_what_is_excluded_has_no_probability_and_no_say(columns):
    made = actor()
    seen = observations(PROBLEM, FEATURES, VOCAB, columns)
    distribution, _ = made(tf.constant(seen), step_type=tf.ones(DECISIONS, tf.int32), network_state=())
    probability = distribution.probs_parameter().numpy()
    excluded = columns["mask"][:, 0] == 0
    assert (probability[excluded] == 0).all() and (probability[~excluded] > 0).all()
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-5)
    assert np.isfinite(distribution.entropy()).all() and distribution.entropy()[0] == 0
    other = {**columns, "weight": np.where(columns["mask"] == 0, 9, columns["weight"]).astype(np.float32)}
    np.testing.assert_array_equal(
        networks.logits(made, observations(PROBLEM, FEATURES, VOCAB, other)), networks.logits(made, seen)
    )


def test_gradients_are_finite(columns):
    made = actor()
    seen = tf.constant(observations(PROBLEM, FEATURES, VOCAB, columns))
    with tf.GradientTape() as tape:
        log_p = tf.nn.log_softmax(networks.logits(made, seen))
        entropy = -tf.reduce_mean(tf.reduce_sum(tf.exp(log_p) * log_p, axis=-1))
    gradients = tape.gradient(entropy, made.trainable_variables)
    assert all(np.isfinite(g).all() for g in gradients) and any(np.any(g) for g in gradients)


def test_dropout_works_in_training_only(columns):
    made = actor(dropout=0.5)
    seen = observations(PROBLEM, FEATURES, VOCAB, columns)
    still = logits(networks.to_dense(made, VOCAB, FEATURES, "regalloc"), seen)
    np.testing.assert_allclose(networks.logits(made, seen), still, atol=1e-5)
    assert np.abs(networks.logits(made, seen, training=True) - still).max() > 0.01


def test_logged_logits_become_finite():
    np.testing.assert_array_equal(finite(np.array([-np.inf, 2.5], np.float32)), np.array([EXCLUDED, 2.5], np.float32))


def test_gin_sets_the_layers_of_the_problem():
    networks.configure("regalloc", ["actor_network.fc_layer_params = (5, 4)"])
    made = networks.actor_network(3, ACTIONS, masked=True)
    assert [tuple(layer.kernel.shape) for layer in networks.dense_layers(made)] == [(12, 5), (5, 4), (4, 1)]
