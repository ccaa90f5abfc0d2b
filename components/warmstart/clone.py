"""Behavioural cloning: the network learns the probability that the heuristic takes each action."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tensorflow as tf
from tf_agents.networks import network

from components.policy import networks
from components.policy.dense import DensePolicy
from components.warmstart.config import WarmstartConfig
from components.warmstart.data import Decisions

WARMUP = 0.02
"""The share of all steps in which the learning rate rises: Adam's first steps are badly scaled."""
SAMPLE_DECISIONS = 20_000
"""Decisions on which agreement is measured during training; the last figure is taken on all of them."""


@dataclass(frozen=True)
class Cloned:
    """What came of it.

    decisions_per_s: decisions consumed by training steps per second of the training loop's wall time, its evaluation
    left out; tracing_s is the wall time of TensorFlow's tracing, which happens once whatever the number of decisions.
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
) -> Cloned:
    """Trains a network on the decisions that are not held out.

    Args:
        on_epoch: called after each epoch with its number from 1, its mean loss (nats a decision) and the policy.
    """
    tf.keras.utils.set_random_seed(config.seed)
    problem = decisions.trace.problem
    actor = networks.actor_network(decisions.q.shape[1])
    rows = np.flatnonzero(~decisions.heldout)
    q, action = decisions.q[rows], decisions.action[rows]
    batch_size = min(config.batch_size, len(rows))
    steps = len(rows) // batch_size  # an epoch's remainder waits for the next shuffle
    epoch = _epoch_function(actor, config, steps, batch_size)

    started_s = time.monotonic()
    epoch = epoch.get_concrete_function(
        tf.TensorSpec([len(rows), q.shape[1]], tf.float32), tf.TensorSpec([len(rows)], tf.int32)
    )
    tracing_s = time.monotonic() - started_s

    training_s, loss = 0.0, float("nan")
    order = np.random.default_rng(config.seed)
    for number in range(1, config.epochs + 1):
        started_s = time.monotonic()
        # Shuffled by NumPy once an epoch: a batch is then a slice, which costs TensorFlow nothing.
        permutation = order.permutation(len(rows))
        loss = float(epoch(tf.constant(q[permutation]), tf.constant(action[permutation])))
        training_s += time.monotonic() - started_s
        on_epoch(number, loss, _dense(actor, decisions, config.temperature, problem))
    return Cloned(
        policy=_dense(actor, decisions, config.temperature, problem),
        decisions_per_s=config.epochs * steps * batch_size / training_s,
        training_s=training_s,
        tracing_s=tracing_s,
        loss=loss,
    )


def agreement(policy: DensePolicy, q: np.ndarray, action: np.ndarray) -> float:
    """The share of decisions, [N, F] and [N], in which the policy takes the heuristic's action."""
    return float(np.mean(policy.logits_of_quantiles(q).argmax(axis=1) == action)) if len(q) else float("nan")


def _epoch_function(
    actor: network.Network, config: WarmstartConfig, steps: int, batch_size: int
) -> tf.types.experimental.GenericFunction:
    """One epoch as one call into TensorFlow: to return to Python after each step would cost as much as the step."""
    variables = actor.trainable_variables
    total_steps = config.epochs * steps
    warmup = max(1, int(WARMUP * total_steps))
    schedule = tf.keras.optimizers.schedules.CosineDecay(
        0.0, total_steps - warmup, warmup_target=config.learning_rate, warmup_steps=warmup
    )
    optimizer = tf.keras.optimizers.Adam(schedule)
    optimizer.build(variables)

    def step(q: tf.Tensor, action: tf.Tensor) -> tf.Tensor:  # q: [B, F], action: [B]
        with tf.GradientTape() as tape:
            logits = networks.logits(actor, q, training=True)  # [B, A]
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(action, logits))
            if config.entropy_weight:
                log_p = tf.nn.log_softmax(logits)
                loss += config.entropy_weight * tf.reduce_mean(tf.reduce_sum(tf.exp(log_p) * log_p, axis=-1))
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    # Without autograph, which would convert all of tf-agents' code: tracing is three times as fast.
    @tf.function(autograph=False)
    def epoch(q: tf.Tensor, action: tf.Tensor) -> tf.Tensor:  # [N, F], [N] -> mean loss
        def body(i: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            first = i * batch_size
            batch_q = tf.ensure_shape(q[first : first + batch_size], [batch_size, q.shape[1]])
            return i + 1, total + step(batch_q, action[first : first + batch_size])

        _, total = tf.while_loop(lambda i, total: i < steps, body, (0, 0.0), parallel_iterations=1)
        return total / steps

    return epoch


def _dense(actor: network.Network, decisions: Decisions, temperature: float, problem: str) -> DensePolicy:
    dense = networks.to_dense(actor, decisions.buckets, decisions.features, problem)
    if temperature == 1.0:
        return dense
    weights, bias = dense.layers[-1]
    last = ((weights / temperature).astype(np.float32), (bias / temperature).astype(np.float32))
    return DensePolicy(dense.problem, dense.features, dense.buckets, (*dense.layers[:-1], last))
