"""tf-agents' networks and plain arrays convert into each other without changing the logits."""

import numpy as np
import pytest
import tensorflow as tf

from components.core import problems
from components.core.formats.features import FeatureSpec
from components.core.policy.tf import networks
from components.core.policy.tf.observation import observation_shape, observations
from components.platform.errors import UserError

pytestmark = pytest.mark.usefixtures("fresh_gin")

FEATURES = tuple(FeatureSpec(name, "int64") for name in "abcde")
VOCAB = {f.name: np.arange(1000.0) for f in FEATURES}


@pytest.fixture
def q():
    return np.random.default_rng(0).random((50, 2 * len(FEATURES)), np.float32)


def test_arrays_of_a_network_give_its_logits(q):
    actor = networks.actor_network(len(FEATURES), fc_layer_params=(8, 6))
    dense = networks.to_dense(actor, VOCAB, FEATURES)
    assert [w.shape for w, _ in dense.layers] == [(10, 8), (8, 6), (6, 2)]
    np.testing.assert_allclose(dense.logits_of_inputs(q), networks.logits(actor, q), atol=1e-5)


def test_arrays_loaded_into_another_network_give_the_same_logits(q):
    first, second = (networks.actor_network(len(FEATURES)) for _ in range(2))
    dense = networks.to_dense(first, VOCAB, FEATURES)
    assert np.abs(networks.logits(second, q) - dense.logits_of_inputs(q)).max() > 0.01
    networks.load_dense(second, dense)
    np.testing.assert_allclose(networks.logits(second, q), dense.logits_of_inputs(q), atol=1e-5)


def test_tensors_are_further_inputs():
    features = (*FEATURES, FeatureSpec("embedding", "float32", (3,)))
    columns = {f.name: np.arange(f.size_bytes // f.numpy_dtype.itemsize * 50).reshape(50, -1) for f in features}
    observed = observations(problems.get("inlining"), features, VOCAB, columns)
    assert observed.shape == (50, *observation_shape(problems.get("inlining"), features)) == (50, 13)
    actor = networks.actor_network(len(FEATURES), scale=networks.InputScale.fit(problems.get("inlining"), observed))
    dense = networks.to_dense(actor, VOCAB, features)
    np.testing.assert_allclose(dense.logits(columns), networks.logits(actor, observed), atol=1e-4)


def test_layers_of_equal_shape_start_with_different_weights():
    actor = networks.actor_network(len(FEATURES), fc_layer_params=(16, 16, 16))
    _, second, third, _ = networks.dense_layers(actor)
    assert np.abs(second.kernel - third.kernel).max() > 0.01


def test_initial_weights_follow_the_global_seed():
    def weights():
        tf.keras.utils.set_random_seed(7)
        return networks.to_dense(networks.actor_network(len(FEATURES)), VOCAB, FEATURES).layers[0][0]

    np.testing.assert_array_equal(weights(), weights())


def test_dropout_works_in_training_only(q):
    actor = networks.actor_network(len(FEATURES), dropout=0.5)
    dense = networks.to_dense(actor, VOCAB, FEATURES)
    np.testing.assert_allclose(networks.logits(actor, q), dense.logits_of_inputs(q), atol=1e-5)
    assert np.abs(networks.logits(actor, q, training=True) - dense.logits_of_inputs(q)).max() > 0.01


def test_error_names_both_shapes():
    dense = networks.to_dense(networks.actor_network(len(FEATURES), fc_layer_params=(8,)), VOCAB, FEATURES)
    with pytest.raises(UserError, match=r"\(10, 8\).*\(10, 9\)"):
        networks.load_dense(networks.actor_network(len(FEATURES), fc_layer_params=(9,)), dense)


def test_gin_sets_the_layers_of_the_problem():
    networks.configure("inlining", ["actor_network.fc_layer_params = (5, 4)"])
    shapes = [tuple(layer.kernel.shape) for layer in networks.dense_layers(networks.actor_network(len(FEATURES)))]
    assert shapes == [(10, 5), (5, 4), (4, 2)]


@pytest.mark.parametrize(
    "binding",
    ["actor_network.fc_layers = (5,)", "nobody.knows = 1", "actor_network = = 3", "actor_network.fc_layer_params = ("],
)
def test_a_wrong_binding_is_a_user_error(binding):
    with pytest.raises(UserError, match="gin"):
        networks.configure("inlining", [binding])


@pytest.mark.parametrize("line", ["include 'none.gin'", "import nobody.has_this", "x = (", "\0"])
def test_a_wrong_gin_file_is_a_user_error(tmp_path, line):
    (tmp_path / "mine.gin").write_text(line)
    with pytest.raises(UserError, match="gin"):
        networks.configure("inlining", files=[tmp_path / "mine.gin"])


def test_error_names_a_missing_gin_file(tmp_path):
    with pytest.raises(UserError, match=r"mine\.gin"):
        networks.configure("inlining", files=[tmp_path / "mine.gin"])
