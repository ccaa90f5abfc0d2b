"""The learner: tf-agents' PPO on single decisions whose advantages are already known.

tf-agents computes advantages from a value function and the rewards of a trajectory. Here they come from `credit.py`, so
every decision is a trajectory of one step with its advantage in the policy info (PPOAgent's
compute_value_and_advantage_in_train=False is made for that). The objective is PPO's clipped one (Schulman et al. 2017,
arXiv:1707.06347) with an entropy bonus.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gin
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tf_agents.agents.ppo import ppo_clip_agent
from tf_agents.networks import value_network
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from components.console import UserError
from components.policy import networks


@dataclass(frozen=True)
class Experience:
    """Decisions of an iteration, N in all.

    quantiles: float32 [N, F]. action: int64 [N]. logits: float32 [N, A] of the policy that decided. advantage: float32
    [N], positive is better, about unit deviation.
    """

    quantiles: NDArray[np.float32]
    action: NDArray[np.int64]
    logits: NDArray[np.float32]
    advantage: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.action)


@gin.configurable(module="mlgo")
@dataclass(frozen=True)
class PpoParameters:
    """Hyperparameters, set by gin (`ppo_inlining.gin`).

    learning_rate: of Adam. clip: of the importance ratio. entropy: weight of the bonus. epochs: passes over an
    iteration's decisions. minibatch: decisions an update. gradient_clip: global norm. target_kl: an iteration's updates
    end when the policy has moved this far (nats), 0 for never.
    """

    learning_rate: float = 3e-4
    clip: float = 0.2
    entropy: float = 0.01
    epochs: int = 3
    minibatch: int = 4096
    gradient_clip: float = 1.0
    target_kl: float = 0.0


class Learner:
    """Policy network, Adam and PPO's update. All its state is in `state` and `shuffle_state`."""

    def __init__(self, num_features: int, num_actions: int, parameters: PpoParameters, seed: int) -> None:
        tf.random.set_seed(seed)
        self.parameters = parameters
        self.actor = networks.actor_network(num_features, num_actions)
        self.optimizer = tf.keras.optimizers.Adam(parameters.learning_rate, epsilon=1e-5)
        self.step = tf.Variable(0, dtype=tf.int64, name="train_step")
        self._num_features = num_features
        observation = networks.observation_spec(num_features)
        self._agent = ppo_clip_agent.PPOClipAgent(
            ts.time_step_spec(observation),
            networks.action_spec(num_actions),
            optimizer=self.optimizer,
            actor_net=self.actor,
            # Advantages are given: this network is one unit that PPOAgent demands and nothing trains.
            value_net=value_network.ValueNetwork(observation, fc_layer_params=(1,)),
            importance_ratio_clipping=parameters.clip,
            entropy_regularization=parameters.entropy,
            value_pred_loss_coef=0.0,
            normalize_rewards=False,
            normalize_observations=False,
            gradient_clipping=parameters.gradient_clip,
            num_epochs=1,
            compute_value_and_advantage_in_train=False,
            update_normalizers_in_train=False,
            aggregate_losses_across_replicas=False,
            train_step_counter=self.step,
        )
        self._agent.initialize()
        self._shuffle = np.random.default_rng(seed)
        self.optimizer.build(self._agent_variables())

    def _agent_variables(self) -> list[tf.Variable]:
        return sorted(
            [*self.actor.trainable_weights, *self._agent._value_net.trainable_weights], key=lambda v: v.name
        )

    def _state_variables(self) -> dict[str, tf.Variable]:
        named = {f"weights/{i}": v for i, v in enumerate(self.actor.variables)}
        named |= {f"optimizer/{i}": v for i, v in enumerate(self.optimizer.variables)}
        return {**named, "step": self.step}

    def state(self) -> dict[str, NDArray[Any]]:
        """Weights, Adam's moments, rate and counter, and the number of updates, for a checkpoint."""
        return {name: variable.numpy() for name, variable in self._state_variables().items()}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """The reverse of `state`.

        Raises:
            UserError: the state is of another network.
        """
        variables = self._state_variables()
        if {n: v.shape for n, v in state.items()} != {n: tuple(v.shape) for n, v in variables.items()}:
            raise UserError(
                "the checkpoint is of another network than the one configured",
                "use the gin settings that it was trained with, or another --root-dir",
            )
        for name, variable in variables.items():
            variable.assign(state[name])

    def scale_learning_rate(self, factor: float) -> float:
        """Multiplies Adam's rate; returns the new one."""
        self.optimizer.learning_rate.assign(self.optimizer.learning_rate * factor)
        return float(self.optimizer.learning_rate)

    @property
    def shuffle_state(self) -> dict[str, object]:
        """State of the generator that orders minibatches, as JSON holds it."""
        return dict(self._shuffle.bit_generator.state)

    @shuffle_state.setter
    def shuffle_state(self, state: dict[str, object]) -> None:
        self._shuffle.bit_generator.state = state

    def update(self, experience: Experience) -> dict[str, float]:
        """PPO's epochs over the decisions; returns means over the updates: loss, entropy, kl, clip_fraction, updates."""
        size = min(self.parameters.minibatch, len(experience))
        totals = np.zeros(4)
        updates = 0
        for _ in range(self.parameters.epochs):
            order = self._shuffle.permutation(len(experience))
            epoch_kl = []
            for begin in range(0, len(order) - size + 1, size):
                rows = order[begin : begin + size]
                values = self._minibatch(
                    tf.constant(experience.quantiles[rows]),
                    tf.constant(experience.action[rows]),
                    tf.constant(experience.logits[rows]),
                    tf.constant(experience.advantage[rows]),
                )
                totals += values.numpy()
                epoch_kl.append(float(values[2]))
                updates += 1
            if self.parameters.target_kl and np.mean(epoch_kl) > self.parameters.target_kl:
                break
        means = totals / max(1, updates)
        names = ("policy_gradient_loss", "entropy", "kl", "clip_fraction")
        return {**dict(zip(names, means.tolist(), strict=True)), "updates": float(updates)}

    @tf.function(reduce_retracing=True)
    def _minibatch(
        self, quantiles: tf.Tensor, action: tf.Tensor, logits: tf.Tensor, advantage: tf.Tensor
    ) -> tf.Tensor:
        """One update with [B, ...] decisions; float32 [4]: loss, entropy, KL from the old policy, fraction clipped."""
        ones = tf.ones_like(advantage)[:, None]
        experience = trajectory.Trajectory(
            step_type=tf.fill(tf.shape(ones), ts.StepType.MID),
            observation=quantiles[:, None],
            action=action[:, None],
            policy_info={
                "dist_params": {"logits": logits[:, None]},
                "value_prediction": tf.zeros_like(ones),
                # Of no use without a value function, but PPOAgent takes 0 for "not known" and masks the step.
                "return": ones,
                "advantage": advantage[:, None],
            },
            next_step_type=tf.fill(tf.shape(ones), ts.StepType.MID),
            reward=tf.zeros_like(ones),
            discount=ones,
        )
        before = tf.nn.log_softmax(logits)
        now = tf.nn.log_softmax(networks.logits(self.actor, quantiles))
        probability = tf.exp(now)
        entropy = -tf.reduce_mean(tf.reduce_sum(probability * now, -1))
        kl = tf.reduce_mean(tf.reduce_sum(tf.exp(before) * (before - now), -1))
        ratio = tf.exp(tf.gather(now - before, action, batch_dims=1))
        clipped = tf.reduce_mean(tf.cast(tf.abs(ratio - 1) > self.parameters.clip, tf.float32))
        loss = self._agent.train(experience)
        return tf.stack([loss.extra.policy_gradient_loss, entropy, kl, clipped])

