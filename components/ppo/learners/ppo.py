"""PPO: tf-agents' PPO on single decisions whose advantages are already known.

PPOAgent.train computes advantages from a value function and the rewards of a trajectory. Here they come from
core/counterfactual or, for sampled compiles, ppo/credit, so only the agent's loss is used: PPO's clipped objective
(Schulman et al. 2017, arXiv:1707.06347), on minibatches of decisions from all modules of an iteration. Instead of an
entropy bonus, which favors uniform policies, the loss has the KL divergence from the initial policy (a regularized
Markov decision process, Geist et al. 2019, arXiv:1901.11275): without evidence, the policy stays the initial
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gin
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tf_agents.agents.ppo import ppo_clip_agent
from tf_agents.networks import network, value_network
from tf_agents.trajectories import time_step as ts

from components.core.policy.dense import DensePolicy
from components.core.policy.tf import networks
from components.core.policy.tf.observation import logits as logits_of
from components.ppo.learners.learner import Learner, require_finite, require_possible
from components.ppo.learners.replay import ReplayRows
from components.ppo.module_rollout import ModuleRollout
from components.ppo.rollout import CompilePlan, Rollout
from components.ppo.training_state import TrainingState, normalize_advantages

METRIC_DECISIONS = 8192
"""Decisions on which entropy, KL and clip fraction are measured after an update; enough for two digits."""


@dataclass(frozen=True)
class Experience:
    """N decisions of an iteration.

    Attributes:
        observed: float32 [N, *S], see core/policy/tf/observation.py.
        action: int64 [N].
        logits: float32 [N, A], finite logits of the policy that decided.
        prior: float32 [N, A], logits of the initial policy.
        advantage: float32 [N], positive is better, with a standard deviation of about 1, of flips 0.5.
        weight: float32 [N], weight of the decision in the loss.
    """

    observed: NDArray[np.float32]
    action: NDArray[np.int64]
    logits: NDArray[np.float32]
    prior: NDArray[np.float32]
    advantage: NDArray[np.float32]
    weight: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.action)


def convert_sampled(sampled: Sequence[ModuleRollout], initial: DensePolicy, scale: float) -> Experience:
    """Return a row for each decision of sampled compiles. initial: the policy that the KL penalty keeps to."""
    names = ("observed", "action", "logits", "advantage")
    observed, action, logits, gain = (np.concatenate([getattr(part, name) for part in sampled]) for name in names)
    advantage = normalize_advantages(gain, scale)
    return Experience(observed, action, logits, logits_of(initial, observed), advantage, np.ones_like(advantage))


def convert_flips(flips: ReplayRows, initial: DensePolicy, scale: float) -> Experience:
    """Return a row for each of the two actions of a flip, weighted by its probability.

    With two actions this is the exact gradient before clipping; with more, that among the two.
    """
    gain = normalize_advantages(flips.gain, scale)
    action = np.concatenate([flips.action, flips.alternative])
    both = np.concatenate([flips.logits, flips.logits])
    rows, n = np.arange(len(action)), len(flips)
    logit = both[rows, action].astype(np.float64)
    probability = 1 / (1 + np.exp(np.concatenate([logit[n:] - logit[:n], logit[:n] - logit[n:]])))
    # Twice the probability among the two actions, so that the mean weight is 1.
    weight = (2 * probability).astype(np.float32)
    observed = np.concatenate([flips.observed, flips.observed])
    prior = logits_of(initial, observed)
    return Experience(observed, action, both, prior, np.concatenate([-gain, gain]) / 2, weight)


@gin.configurable(module="mlgo")
@dataclass(frozen=True)
class PpoParameters:
    """Hyperparameters, set by gin (components/ppo/gin/<problem>.gin).

    Attributes:
        learning_rate: Adam's learning rate in the first iteration.
        kl_coef: weight of KL(policy || initial policy) in the first iteration.
        decay_iterations: iterations after which learning_rate and kl_coef are halved; after twice as many they are a
            third. It is not a fraction of the run, so that a run can be extended.
        clip_epsilon: clipping of the importance ratio.
        num_epochs: passes over an iteration's decisions, each without the rest of less than a minibatch.
        minibatch_size: decisions per update.
        max_grad_norm: clipping of the gradient's global norm.
        target_kl: KL divergence (nats) that ends the updates of an iteration; 0 for no limit.
        initial_entropy: minimum mean entropy (nats) of the initial policy, see `calibrate_entropy`.
    """

    learning_rate: float = 1e-3
    decay_iterations: int = 50
    clip_epsilon: float = 0.2
    kl_coef: float = 0.06
    num_epochs: int = 3
    minibatch_size: int = 4096
    max_grad_norm: float = 1.0
    target_kl: float = 0.0
    initial_entropy: float = 0.2


class PpoLearner(Learner):
    """Updates a policy network with PPO.

    Args:
        measures_flips: learn from measured flips instead of sampled compiles.
    """

    def __init__(
        self,
        actor: network.Network,
        num_actions: int,
        parameters: PpoParameters,
        seed: int,
        measures_flips: bool = False,
    ) -> None:
        require_possible(parameters, {"decay_iterations": 1, "num_epochs": 1, "minibatch_size": 1})
        self.parameters = parameters
        super().__init__(actor, parameters.learning_rate, seed)
        observation = self.actor.input_tensor_spec
        self._agent = ppo_clip_agent.PPOClipAgent(
            ts.time_step_spec(observation),
            networks.action_spec(num_actions),
            optimizer=self.optimizer,
            actor_net=self.actor,
            # Advantages are given; PPOAgent requires this network of one unit, which is not trained.
            value_net=value_network.ValueNetwork(observation, fc_layer_params=(1,)),
            importance_ratio_clipping=parameters.clip_epsilon,
            entropy_regularization=0.0,
            value_pred_loss_coef=0.0,
            normalize_rewards=False,
            normalize_observations=False,
            aggregate_losses_across_replicas=False,
            train_step_counter=self.step,
        )
        self._agent.initialize()
        self._measures_flips = measures_flips

    def plan(self, base: DensePolicy) -> CompilePlan:
        return CompilePlan("flip" if self._measures_flips else "sample", (base,))

    def learn(self, rollout: Rollout, state: TrainingState) -> dict[str, float]:
        losses = {}
        if len(gains := rollout.gains):
            scale = state.update_scale(gains)
            if self._measures_flips:
                experience = convert_flips(ReplayRows.concatenate(rollout.flips), self.initial, scale)
            else:
                experience = convert_sampled(rollout.sampled, self.initial, scale)
            losses = self.update(experience, state.iteration)
        self._average(state.iteration)
        return losses

    def update(self, experience: Experience, iteration: int = 0) -> dict[str, float]:
        """Update the policy with the decisions of an iteration. UserError if the weights are no longer finite.

        Args:
            iteration: number of the iteration, from 0.

        Returns:
            `learning_rate`; means over the updates of `policy_gradient_loss` and of `prior_kl`, KL(new || initial) in
            nats; after the updates, on at most METRIC_DECISIONS of the decisions, `entropy`, `kl`, which is KL(previous
            || new) in nats, and `clip_fraction`.
        """
        size = min(self.parameters.minibatch_size, len(experience))
        decay = 1 / (1 + iteration / self.parameters.decay_iterations)
        rate = self.parameters.learning_rate * decay
        self.optimizer.learning_rate.assign(rate)
        losses = []
        sample = _tensors(experience, self._shuffle.permutation(len(experience))[:METRIC_DECISIONS])[:3]
        for _ in range(self.parameters.num_epochs):
            order = self._shuffle.permutation(len(experience))
            for begin in range(0, len(order) - size + 1, size):
                rows = _tensors(experience, order[begin : begin + size])
                losses.append(self._minibatch(*rows, tf.constant(self.parameters.kl_coef * decay, tf.float32)))
            if self.parameters.target_kl and self._policy_shift(*sample).numpy()[1] > self.parameters.target_kl:
                break
        shift = self._policy_shift(*sample).numpy()
        means = np.mean([loss.numpy() for loss in losses], axis=0)
        require_finite(self.weights)
        names = ("policy_gradient_loss", "prior_kl", "entropy", "kl", "clip_fraction")
        metrics = {name: float(value) for name, value in zip(names, [*means, *shift], strict=True)}
        return {**metrics, "learning_rate": rate}

    @tf.function(autograph=False, reduce_retracing=True)  # no Python control flow on tensors
    def _minibatch(
        self,
        observed: tf.Tensor,
        action: tf.Tensor,
        logits: tf.Tensor,
        prior: tf.Tensor,
        advantage: tf.Tensor,
        weight: tf.Tensor,
        prior_weight: tf.Tensor,
    ) -> tf.Tensor:
        """Update with [B, ...] decisions; return float32 [2], policy gradient loss and KL divergence from the prior."""
        ones = tf.ones_like(advantage)
        steps = ts.TimeStep(
            step_type=tf.fill(tf.shape(ones), ts.StepType.MID), reward=ones, discount=ones, observation=observed
        )
        variables = self.weights
        with tf.GradientTape() as tape:
            loss = self._agent.get_loss(
                steps,
                action,
                act_log_probs=tf.gather(tf.nn.log_softmax(logits), action, batch_dims=1),
                returns=ones,
                normalized_advantages=advantage,
                action_distribution_parameters={"logits": logits},
                weights=weight,
                train_step=self.step,
                debug_summaries=False,
                training=True,
            )
            now = tf.nn.log_softmax(networks.logits(self.actor, observed))
            divergence = _divergence(now, tf.nn.log_softmax(prior))
            total = loss.loss + prior_weight * divergence
        gradients, _ = tf.clip_by_global_norm(tape.gradient(total, variables), self.parameters.max_grad_norm)
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        self.step.assign_add(1)
        return tf.stack([loss.extra.policy_gradient_loss, divergence])

    @tf.function(autograph=False, reduce_retracing=True)  # no Python control flow on tensors
    def _policy_shift(self, observed: tf.Tensor, action: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Return float32 [3]: entropy of the policy, KL(policy of `logits` || this one), fraction of clipped ratios."""
        before = tf.nn.log_softmax(logits)
        now = tf.nn.log_softmax(networks.logits(self.actor, observed))
        entropy = -tf.reduce_mean(tf.reduce_sum(tf.exp(now) * now, -1))
        kl = _divergence(before, now)
        ratio = tf.exp(tf.gather(now - before, action, batch_dims=1))
        clipped = tf.reduce_mean(tf.cast(tf.abs(ratio - 1) > self.parameters.clip_epsilon, tf.float32))
        return tf.stack([entropy, kl, clipped])


def _divergence(left: tf.Tensor, right: tf.Tensor) -> tf.Tensor:
    """Return the mean of KL(left || right) over log probabilities [B, A], in nats."""
    return tf.reduce_mean(tf.reduce_sum(tf.exp(left) * (left - right), -1))


def _tensors(experience: Experience, rows: NDArray[np.int64]) -> list[tf.Tensor]:
    e = experience
    columns: list[NDArray[Any]] = [e.observed, e.action, e.logits, e.prior, e.advantage, e.weight]
    return [tf.constant(column[rows]) for column in columns]
