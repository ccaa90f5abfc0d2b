"""The networks that training updates: tf-agents' networks over quantiles and magnitudes of the features.

`observation.py` computes the observations in NumPy, once per decision. If the problem has a mask, the networks' first
layer expands quantiles to q, sqrt(q), q*q, and the same layers score each action by its own row. All hyperparameters of
networks are here and set by gin (`gin/<problem>.gin`).
"""

from __future__ import annotations

import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gin
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
from numpy.typing import NDArray
from tf_agents.networks import actor_distribution_network, network, sequential
from tf_agents.specs import tensor_spec

from components.core import problems
from components.core.formats.features import FeatureSpec
from components.core.policy.dense import DensePolicy, Layer
from components.core.policy.feature_encoding import expand, inputs_per_feature
from components.core.policy.tf.observation import EXCLUDED, network_features
from components.core.problems import Problem
from components.platform.errors import UserError

GIN_DIRECTORY = Path(__file__).with_name("gin")
MIN_DEVIATION = 0.02
"""Least deviation of an input: one that hardly varies in the sample must not become huge in other decisions."""


@dataclass(frozen=True)
class InputScale:
    """Standardization of the first layer's inputs in training; the weights of exported policies include it.

    On standardized inputs the same network (64-64-32) explained 86 to 88% of the variance of decisions' worth on unseen
    modules, otherwise 75% (docs/performance.md, the experiments with features).

    Attributes:
        mean, deviation: float32 [num_layer_inputs], ordered as in `expand`; deviations are positive.
    """

    mean: NDArray[np.float32]
    deviation: NDArray[np.float32]

    @staticmethod
    def identity(num_features: int, masked: bool) -> InputScale:
        """Return the scale that leaves inputs as they are."""
        count = inputs_per_feature(masked) * num_features
        return InputScale(np.zeros(count, np.float32), np.ones(count, np.float32))

    @staticmethod
    def fit(problem: Problem, observed: NDArray[np.float32]) -> InputScale:
        """Return the scale of observations [N, *S] (policy/observation.py) without excluded actions."""
        inputs = observed if problem.policy.mask is None else observed[observed[..., -1] != 0][:, :-1]
        expanded = expand(inputs, problem.policy.mask is not None).astype(np.float64)
        deviation = np.maximum(expanded.std(axis=0), MIN_DEVIATION)
        return InputScale(expanded.mean(axis=0).astype(np.float32), deviation.astype(np.float32))

    def fold(self, layer: Layer) -> Layer:
        """Return the layer that computes from plain inputs what `layer` computes from standardized ones."""
        weights, bias = (part.astype(np.float64) for part in layer)
        folded = weights / self.deviation[:, None]
        return folded.astype(np.float32), (bias - self.mean @ folded).astype(np.float32)

    def unfold(self, layer: Layer) -> Layer:
        """Invert `fold`."""
        weights, bias = (part.astype(np.float64) for part in layer)
        unfolded = weights * self.deviation[:, None]
        return unfolded.astype(np.float32), (bias + self.mean @ weights).astype(np.float32)


class QuantileExpansion(tf.keras.layers.Layer):
    """Expands inputs [B, 2 * F] as `feature_encoding.expand` does, and standardizes them."""

    def __init__(self, scale: InputScale, masked: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.scale, self._masked = scale, masked

    def call(self, inputs: tf.Tensor) -> tf.Tensor:
        if self._masked:
            q, others = tf.split(inputs, 2, axis=-1)
            # Not interleaved by feature, which would take TensorFlow longer than the first layer.
            inputs = tf.concat([q, tf.sqrt(q), q * q, others], axis=-1)
        return (inputs - self.scale.mean) / self.scale.deviation

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "scale": self.scale, "masked": self._masked}


class ActionScores(tf.keras.layers.Layer):
    """Maps observations [B, A, 2 * F + 1] to logits [B, A], EXCLUDED where the last column is 0.

    All actions share the dense layers, with relu after each but the last, which has one unit. Excluded actions are not
    computed: most of the register allocator's 33 are excluded.
    """

    def __init__(self, fc_layer_params: Sequence[int], dropout: float, scale: InputScale) -> None:
        super().__init__(name="action_scores")
        initializer = _initializer()
        self.dense = [tf.keras.layers.Dense(u, tf.nn.relu, kernel_initializer=initializer) for u in fc_layer_params]
        # Small weights, as in tf-agents' projection to logits: initially all actions are about equally probable.
        small = tf.keras.initializers.VarianceScaling(scale=0.1)
        self.dense.append(tf.keras.layers.Dense(1, kernel_initializer=small, name="score"))
        self.expansion, self._dropout = QuantileExpansion(scale, masked=True), tf.keras.layers.Dropout(dropout)

    def call(self, observations: tf.Tensor, training: bool = False) -> tf.Tensor:
        """Return the scores of the actions; EXCLUDED for those that the mask forbids."""
        allowed = tf.where(observations[..., -1] != 0)  # [allowed actions, 2]
        x = self.expansion(tf.gather_nd(observations[..., :-1], allowed))
        for layer in self.dense[:-1]:
            x = self._dropout(layer(x), training=training)
        excluded = tf.fill(tf.shape(observations)[:2], EXCLUDED)
        return tf.tensor_scatter_nd_update(excluded, allowed, self.dense[-1](x)[:, 0])


def observation_spec(*shape: int) -> tensor_spec.TensorSpec:
    """Return the float32 spec of observations; `shape` is that of `observation.observation_shape`."""
    return tensor_spec.TensorSpec(shape, tf.float32, name="observation")


def action_spec(num_actions: int) -> tensor_spec.BoundedTensorSpec:
    """Return the spec of an int64 scalar in [0, num_actions)."""
    return tensor_spec.BoundedTensorSpec([], tf.int64, minimum=0, maximum=num_actions - 1, name="action")


def configure(problem: str, bindings: Sequence[str] = (), files: Sequence[Path] = ()) -> None:
    """Parse the problem's gin file, then the user's files and bindings. UserError if gin rejects any of them."""
    paths = [GIN_DIRECTORY / f"{problem}.gin", *files]
    for path in paths:
        if not path.is_file():
            raise UserError(f"no gin file at {path}", "check the path")
    try:
        gin.parse_config_files_and_bindings([str(p) for p in paths], list(bindings))
    # A truncated binding raises TokenError, a missing include OSError, a missing import ImportError.
    except (ValueError, SyntaxError, TypeError, tokenize.TokenError, OSError, ImportError, RecursionError) as error:
        remedy = "correct the file or the binding, e.g. actor_network.fc_layer_params=(64,64,32)"
        raise UserError(f"gin: {error}", remedy) from None


@gin.configurable(module="mlgo")
def actor_network(
    num_features: int,
    num_actions: int = 2,
    fc_layer_params: Sequence[int] = (64, 64, 32),
    dropout: float = 0.0,
    masked: bool = False,
    scale: InputScale | None = None,
) -> network.Network:
    """The policy: a categorical distribution over the actions.

    Args:
        num_features: F of the observation, the mask and tensors not counted.
        masked: whether each action is scored by its own features, and some are excluded.
        scale: standardization of the inputs; None leaves them as they are, if there are no tensors.
        fc_layer_params: units of the hidden layers, relu after each.
        dropout: rate after every hidden layer while training; never active in an exported policy.

    The initial weights follow tf.random.set_seed.
    """
    scale = scale or InputScale.identity(num_features, masked)
    if masked:
        categorical = tf.keras.layers.Lambda(lambda x: tfp.distributions.Categorical(logits=x, dtype=tf.int64))
        layers = [ActionScores(fc_layer_params, dropout, scale), categorical]
        scores = sequential.Sequential(layers, observation_spec(num_actions, 2 * num_features + 1), name="actor")
        scores.create_variables()
        return scores
    actor = actor_distribution_network.ActorDistributionNetwork(
        observation_spec(len(scale.mean)),
        action_spec(num_actions),
        preprocessing_layers=QuantileExpansion(scale),
        fc_layer_params=tuple(fc_layer_params),
        dropout_layer_params=[dropout] * len(fc_layer_params) if dropout else None,
        kernel_initializer=_initializer(),
        name="actor",
    )
    actor.create_variables()
    return actor


def _initializer() -> tf.keras.initializers.Initializer:
    # TensorFlow 1's initializer: all layers of a network share one instance, and that of TensorFlow 2 would give layers
    # of equal shape equal weights.
    return tf.compat.v1.keras.initializers.he_uniform()


def logits(actor: network.Network, observations: tf.Tensor, training: bool = False) -> tf.Tensor:
    """Return float32 [B, num_actions] from observations [B, ...]; differentiable."""
    step_type = tf.ones(tf.shape(observations)[:1], tf.int32)  # MID; the network ignores it
    distribution, _ = actor(observations, step_type=step_type, network_state=(), training=training)
    return distribution.logits_parameter()


def dense_layers(actor: network.Network) -> list[tf.keras.layers.Dense]:
    """Return the actor's dense layers from the input to the logits, the only layers with weights."""
    if isinstance(actor, sequential.Sequential):
        return list(actor.layers[0].dense)
    layers = [m for m in actor.submodules if isinstance(m, tf.keras.layers.Dense)]
    # The order of submodules is unspecified; the projection to logits is the layer that the encoder does not own.
    encoder = actor._encoder  # has no public accessor
    hidden = [layer for layer in encoder.layers if isinstance(layer, tf.keras.layers.Dense)]
    projection = [layer for layer in layers if all(layer is not h for h in hidden)]
    if len(projection) != 1:
        raise ValueError(f"{actor.name} is not a network of actor_network()")
    return [*hidden, *projection]


def dense_arrays(actor: network.Network) -> list[Layer]:
    """Return (W float32 [inputs, outputs], b float32 [outputs]) of each dense layer, for inputs not standardized.

    The arrays are copies; dropout does not affect them.
    """
    first, *others = [(layer.kernel.numpy(), layer.bias.numpy()) for layer in dense_layers(actor)]
    return [_scale_of(actor).fold(first), *others]


def _scale_of(actor: network.Network) -> InputScale:
    # tf-agents keeps a copy of the layer next to the original.
    return next(module.scale for module in actor.submodules if isinstance(module, QuantileExpansion))


def to_dense(
    actor: network.Network,
    vocab: Mapping[str, NDArray[np.float64]],
    features: Sequence[FeatureSpec],
    problem: str = "inlining",
    limits: Mapping[str, int] | None = None,
) -> DensePolicy:
    """Return the network's current weights as a policy over `features`, whose boundaries are in `vocab`.

    Args:
        limits: feature -> largest trained value; beyond it the policy decides like the heuristic.
    """
    encoded = network_features(problems.get(problem), features)
    buckets = {f.name: np.asarray(vocab[f.name], np.float64) for f in encoded}
    return DensePolicy(problem, tuple(features), buckets, tuple(dense_arrays(actor)), limits or {})


def load_dense(actor: network.Network, dense: DensePolicy) -> None:
    """Set the network's weights from `dense`. UserError if the shapes of their layers differ."""
    layers = dense_layers(actor)
    actual = [tuple(layer.kernel.shape) for layer in layers]
    expected = [weights.shape for weights, _ in dense.layers]
    if actual != expected:
        raise UserError(
            f"the policy's layers are {expected}, the configured network's are {actual}",
            "use the gin settings that the policy was trained with",
        )
    first, *others = dense.layers
    for layer, (weights, bias) in zip(layers, [_scale_of(actor).unfold(first), *others], strict=True):
        layer.kernel.assign(weights)
        layer.bias.assign(bias)
