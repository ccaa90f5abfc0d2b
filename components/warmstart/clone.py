"""Behavioural cloning: the network learns the probability that the heuristic takes each action."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tf_agents.networks import network

from components.core import problems
from components.core.policy.dense import DensePolicy
from components.core.policy.feature_encoding import inputs_per_feature, num_elements, tensor_features
from components.core.policy.tf import networks
from components.core.policy.tf.observation import logits
from components.platform.errors import UserError
from components.warmstart.config import WarmstartConfig
from components.warmstart.data import Decisions

WARMUP = 0.02
"""Fraction of the steps in which the learning rate rises, because Adam's first steps are badly scaled."""
MIN_STEPS = 600
"""Minimum optimizer steps, if batches of MIN_BATCH decisions allow that many."""
MIN_BATCH = 128
SAMPLE_DECISIONS = 20_000
"""Decisions on which agreement is measured during training; the final figure uses all of them."""


@dataclass(frozen=True)
class CloneResult:
    """A trained policy and how it was trained.

    Attributes:
        decisions_per_s: decisions per second of the training loop's wall time, without its evaluation.
        training_s: that wall time.
        tracing_s: wall time of TensorFlow's tracing, which does not depend on the number of decisions.
        loss: mean of the last epoch, nats per decision.
    """

    policy: DensePolicy
    decisions_per_s: float
    training_s: float
    tracing_s: float
    loss: float


def clone(
    config: WarmstartConfig,
    decisions: Decisions,
    on_epoch: Callable[[int, float, DensePolicy], None] = lambda epoch, loss, policy: None,
) -> CloneResult:
    """Train a network on the decisions that are not held out. UserError if no feature varies.

    Args:
        on_epoch: called after each epoch with its number from 1, its mean loss (nats per decision) and the policy.
    """
    tf.keras.utils.set_random_seed(config.seed)
    problem = problems.get(decisions.trace.problem)
    rows = np.flatnonzero(~decisions.heldout)
    # The weights of features that never vary stay zero instead of their random initial values, so that other values
    # later do not change decisions at random.
    seen = decisions.observed[rows]
    if problem.policy.mask is not None:
        seen = seen[seen[..., -1] != 0]
    varying = np.flatnonzero(np.ptp(seen[:, : len(decisions.buckets)], axis=0) > 0)
    if not len(varying):
        raise UserError("every feature has the same value in all decisions", "make a trace of more modules")
    masked = problem.policy.mask is not None
    actor = networks.actor_network(len(varying), problem.policy.num_actions, masked=masked)
    # Magnitudes or action_ranks follow the quantiles, and the mask is last. The heuristic needs no tensors.
    columns = np.concatenate([varying, len(decisions.buckets) + varying, *([[-1]] if masked else [])]).astype(np.intp)
    observed = tf.constant(decisions.observed[rows][..., columns])
    action = tf.constant(decisions.action[rows])
    # Smaller for few decisions: after some tens of steps an optimizer has learned nothing.
    enough = max(MIN_BATCH, len(rows) * config.epochs // MIN_STEPS)
    batch_size = min(config.batch_size, enough, len(rows))
    steps = len(rows) // batch_size  # the remainder waits for the next shuffle

    started_s = time.monotonic()
    epoch = _epoch_function(actor, config, observed, action, steps, batch_size)
    tracing_s = time.monotonic() - started_s

    def policy() -> DensePolicy:
        return _expand_features(actor, decisions, varying, config.temperature)

    training_s, loss = 0.0, float("nan")
    order = np.random.default_rng(config.seed)
    for number in range(1, config.epochs + 1):
        started_s = time.monotonic()
        loss = float(epoch(tf.constant(order.permutation(len(rows)).astype(np.int32))))
        training_s += time.monotonic() - started_s
        on_epoch(number, loss, policy())
    decisions_per_s = config.epochs * steps * batch_size / training_s
    return CloneResult(policy(), decisions_per_s, training_s, tracing_s, loss)


def decide(policy: DensePolicy, observed: np.ndarray) -> NDArray[np.intp]:
    """Return the policy's actions [N] in the decisions [N, *S]."""
    return logits(policy, observed).argmax(axis=1) if len(observed) else np.zeros(0, np.intp)


def agreement(policy: DensePolicy, observed: np.ndarray, action: np.ndarray) -> float:
    """Return the fraction of decisions, [N, *S] and [N], in which the policy takes the heuristic's action."""
    return float(np.mean(decide(policy, observed) == action)) if len(observed) else float("nan")


def _epoch_function(
    actor: network.Network, config: WarmstartConfig, observed: tf.Tensor, action: tf.Tensor, steps: int, batch_size: int
) -> tf.types.experimental.ConcreteFunction:
    """Return a function that trains an epoch in one call: returning to Python after each step would double its time.

    Args:
        observed: float32 [N, *S].
        action: int32 [N].

    Returns:
        A function from the order of the decisions, int32 [N], to the mean loss.
    """
    variables = actor.trainable_variables
    total_steps = config.epochs * steps
    rate, warmup = config.learning_rate, min(max(1, int(WARMUP * total_steps)), total_steps - 1)
    # A single step has no warm-up, in which its learning rate would be 0.
    schedule = tf.keras.optimizers.schedules.CosineDecay(
        0.0 if warmup else rate, total_steps - warmup, warmup_target=rate if warmup else None, warmup_steps=warmup
    )
    optimizer = tf.keras.optimizers.Adam(schedule)
    optimizer.build(variables)

    def step(observed: tf.Tensor, action: tf.Tensor) -> tf.Tensor:  # [B, *S], [B]
        with tf.GradientTape() as tape:
            logits = networks.logits(actor, observed, training=True)  # [B, A]
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(action, logits))
            if config.entropy_weight:
                log_p = tf.nn.log_softmax(logits)
                loss += config.entropy_weight * tf.reduce_mean(tf.reduce_sum(tf.exp(log_p) * log_p, axis=-1))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    # Without autograph, which would convert tf-agents' code, tracing is three times as fast.
    @tf.function(autograph=False, input_signature=[tf.TensorSpec(action.shape, tf.int32)])
    def epoch(order: tf.Tensor) -> tf.Tensor:
        def body(i: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            batch = tf.ensure_shape(order[i * batch_size : (i + 1) * batch_size], [batch_size])
            return i + 1, total + step(tf.gather(observed, batch), tf.gather(action, batch))

        _, total = tf.while_loop(lambda i, total: i < steps, body, (0, 0.0), parallel_iterations=1)
        return total / steps

    return epoch.get_concrete_function()


def _expand_features(
    actor: network.Network, decisions: Decisions, varying: NDArray[np.intp], temperature: float
) -> DensePolicy:
    """Return the policy over all features of the decisions, with zero weights for those that the actor lacks.

    Reinforcement learning finds out what tensors are good for, on standardized inputs.
    """
    layers = networks.dense_arrays(actor)
    features = len(decisions.buckets)  # all features but the mask and tensors, in their order
    narrow, bias = layers[0]
    masked = problems.get(decisions.trace.problem).policy.mask is not None
    inputs = inputs_per_feature(masked)
    elements = sum(map(num_elements, tensor_features(decisions.features, masked)))
    wide = np.zeros((inputs, features, narrow.shape[1]), np.float32)
    wide[:, varying] = narrow.reshape(inputs, len(varying), -1)
    unused = np.zeros((elements, narrow.shape[1]), np.float32)
    layers[0] = (np.concatenate([wide.reshape(inputs * features, -1), unused]), bias)
    weights, bias = layers[-1]
    layers[-1] = ((weights / temperature).astype(np.float32), (bias / temperature).astype(np.float32))
    problem = decisions.trace.problem
    return DensePolicy(problem, decisions.features, decisions.buckets, tuple(layers), decisions.limits)
