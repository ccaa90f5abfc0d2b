"""Networks of a problem with a mask give the logits of the policy's plain arrays, whatever the mask excludes."""

import numpy as np
import pytest
import tensorflow as tf

from components.core import problems
from components.core.formats.features import FeatureSpec
from components.core.policy.tf import networks
from components.core.policy.tf.observation import EXCLUDED, finite_logits, logits, observation_shape, observations
from components.platform.errors import UserError

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
    mask[np.arange(DECISIONS), 0, rng.integers(0, ACTIONS, DECISIONS)] = 1  # decision 0 allows no other
    return {
        "weight": rng.random((DECISIONS, 1, ACTIONS), np.float32),
        "mask": mask,
        "stage": rng.integers(0, 7, (DECISIONS, 1, ACTIONS)),
        "progress": rng.random((DECISIONS, 1), np.float32),
    }


def actor(**parameters):
    parameters = {"fc_layer_params": (8, 6), **parameters}
    network = networks.actor_network(3, ACTIONS, masked=True, **parameters)
    for layer in networks.dense_layers(network):  # larger than the initial ones, so that logits differ
        layer.bias.assign(np.random.default_rng(2).normal(size=layer.bias.shape))
    return network


def test_arrays_of_a_network_give_its_logits(columns):
    network = actor()
    dense = networks.to_dense(network, VOCAB, FEATURES, "regalloc")
    assert [w.shape for w, _ in dense.layers] == [(12, 8), (8, 6), (6, 1)]
    observed = observations(PROBLEM, FEATURES, VOCAB, columns)
    assert observed.dtype == np.float32 and observed.shape == (DECISIONS, *observation_shape(PROBLEM, FEATURES))
    expected = dense.logits(columns)
    np.testing.assert_allclose(networks.logits(network, observed), finite_logits(expected), atol=1e-5)
    np.testing.assert_array_equal(logits(dense, observed), finite_logits(expected))


def test_arrays_loaded_into_another_network_give_the_same_logits(columns):
    dense = networks.to_dense(actor(), VOCAB, FEATURES, "regalloc")
    other = networks.actor_network(3, ACTIONS, masked=True, fc_layer_params=(8, 6))
    observed = observations(PROBLEM, FEATURES, VOCAB, columns)
    assert np.abs(networks.logits(other, observed) - logits(dense, observed)).max() > 0.01
    networks.load_dense(other, dense)
    np.testing.assert_allclose(networks.logits(other, observed), logits(dense, observed), atol=1e-5)
    with pytest.raises(UserError, match=r"\(12, 8\).*\(12, 9\)"):
        networks.load_dense(actor(fc_layer_params=(9, 6)), dense)


def test_excluded_actions_have_no_probability_and_no_influence(columns):
    network = actor()
    observed = observations(PROBLEM, FEATURES, VOCAB, columns)
    distribution, _ = network(tf.constant(observed), step_type=tf.ones(DECISIONS, tf.int32), network_state=())
    probability = distribution.probs_parameter().numpy()
    excluded = columns["mask"][:, 0] == 0
    assert (probability[excluded] == 0).all() and (probability[~excluded] > 0).all()
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=1e-5)
    assert np.isfinite(distribution.entropy()).all() and distribution.entropy()[0] == 0
    changed = {**columns, "weight": np.where(columns["mask"] == 0, 9, columns["weight"]).astype(np.float32)}
    np.testing.assert_array_equal(
        networks.logits(network, observations(PROBLEM, FEATURES, VOCAB, changed)), networks.logits(network, observed)
    )


def test_gradients_are_finite(columns):
    network = actor()
    observed = tf.constant(observations(PROBLEM, FEATURES, VOCAB, columns))
    with tf.GradientTape() as tape:
        log_p = tf.nn.log_softmax(networks.logits(network, observed))
        entropy = -tf.reduce_mean(tf.reduce_sum(tf.exp(log_p) * log_p, axis=-1))
    gradients = tape.gradient(entropy, network.trainable_variables)
    assert all(np.isfinite(g).all() for g in gradients) and any(np.any(g) for g in gradients)


def test_dropout_works_in_training_only(columns):
    network = actor(dropout=0.5)
    observed = observations(PROBLEM, FEATURES, VOCAB, columns)
    expected = logits(networks.to_dense(network, VOCAB, FEATURES, "regalloc"), observed)
    np.testing.assert_allclose(networks.logits(network, observed), expected, atol=1e-5)
    assert np.abs(networks.logits(network, observed, training=True) - expected).max() > 0.01


def test_logged_logits_become_finite():
    np.testing.assert_array_equal(
        finite_logits(np.array([-np.inf, 2.5], np.float32)), np.array([EXCLUDED, 2.5], np.float32)
    )
