"""DQN on measured flips: regression of action values to the one-step returns of both actions of a decision.

For each validation, the network is fitted to all flips, starting from the initial weights (neural fitted Q iteration,
Riedmiller 2005, doi:10.1007/11564096_32), in a thread while an iteration compiles. A network that is trained
continuously sees its first flips fifty times and memorizes their modules; docs/performance.md has the figures.

A measured decision is an episode of one step, so an action's value is its return and nothing is bootstrapped (Mnih et
al. 2015, doi:10.1038/nature14236, with a discount of 0). Only the difference of two actions is known. If a decision has
two actions, each gets half of the difference, with opposite signs. Otherwise the base's action returns 0 and the
alternative the difference, because halves of several differences are not comparable. The greedy policy takes the action
with the largest value.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import gin
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tf_agents.networks import network

from components.core import problems
from components.core.counterfactual.influence import FEW_CALLS
from components.core.policy.dense import DensePolicy
from components.core.policy.feature_encoding import invert_magnitudes
from components.core.policy.tf import networks
from components.core.policy.tf.observation import logits
from components.ppo.learners.learner import Learner, require_finite, require_possible
from components.ppo.learners.replay import ReplayBuffer, ReplayRows, Segment
from components.ppo.policy_weights import mean_policy
from components.ppo.rollout import CompilePlan, Rollout
from components.ppo.training_state import TrainingState, normalize_advantages

BATCHES_PER_DRAW = 150
"""Minibatches whose flips are read at once, because flips are stored by module."""
AVERAGED_FROM = 0.5
"""Fraction of a fit's steps after which weights are averaged (Izmailov et al. 2018, arXiv:1803.05407)."""
AVERAGED_EVERY = 10


@gin.configurable(module="mlgo")
@dataclass(frozen=True)
class DqnParameters:
    """Hyperparameters, set by gin (components/ppo/gin/<problem>.gin).

    Attributes:
        learning_rate: Adam's learning rate at the start of a fit; it decays to an eleventh.
        minibatch_size: flips per gradient step.
        num_epochs: passes over the flips per fit, on average.
        max_steps: maximum gradient steps per fit.
        final_fits: number of fits at the end of a training, whose weights are averaged.
        max_grad_norm: clipping of the norm of each weight's gradient.
        replay_measurements: number of the newest measurements of each module that are used.
        margin: penalty of actions other than the initial policy's, in units of the returns: without evidence, the
            policy decides like the initial one.
        repeated_margin: fraction of the margin that is added for each e-fold of a callee's uses beyond FEW_CALLS.
            Hundreds of calls of a function get the same decision, so a wrong decision is wrong hundreds of times.
    """

    learning_rate: float = 3e-3
    minibatch_size: int = 256
    num_epochs: float = 10.0
    max_steps: int = 8000
    final_fits: int = 3
    max_grad_norm: float = 1.0
    replay_measurements: int = 2
    margin: float = 0.1
    repeated_margin: float = 0.0


def compute_margins(parameters: DqnParameters, repeats: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the margin of each decision, float32 [N]. repeats: number of similar decisions, float64 [N]."""
    folds = np.log(np.maximum(repeats / FEW_CALLS, 1.0))
    return (parameters.margin * (1 + parameters.repeated_margin * folds)).astype(np.float32)


def compute_advantages(
    flips: ReplayRows, initial: DensePolicy, scale: float, parameters: DqnParameters
) -> NDArray[np.float32]:
    """Return float32 [N], the value of the alternative minus that of the base's action, in favor of the initial policy.

    A margin is subtracted where the alternative departs from the initial policy's action, and added where it returns.
    """
    initial_action = logits(initial, flips.observed).argmax(1)
    departure = (flips.action == initial_action).astype(np.float32) - (flips.alternative == initial_action)
    margins = compute_margins(parameters, _count_repeats(flips, initial))
    return normalize_advantages(flips.gain, scale) - margins * departure


def _count_repeats(flips: ReplayRows, policy: DensePolicy) -> NDArray[np.float64]:
    """Return float64 [N], how many similar decisions each flip's decision may have, 1 if unknown."""
    names = [feature.name for feature in policy.network_features]
    feature = problems.get(policy.problem).training.repeats
    if feature not in names:
        return np.ones(len(flips))
    return invert_magnitudes(flips.observed[:, len(names) + names.index(feature)])


class DqnLearner(Learner):
    """Fits a network of action values, the outputs of the actor's network, to measured flips.

    A fit reads nothing that an iteration changes, and its random numbers depend only on the seed and its number.
    Nothing else may use the network until it ends.
    """

    # A policy from values that are barely learned is much worse than the one it would replace.
    compiles_with = "best"
    # Single fits to the same flips differ by more than late iterations gain.
    prefers_final = True

    def __init__(self, actor: network.Network, num_actions: int, parameters: DqnParameters, seed: int) -> None:
        require_possible(parameters, {"minibatch_size": 1, "max_steps": 1, "replay_measurements": 1, "final_fits": 1})
        self.parameters = parameters
        self._seed = seed
        super().__init__(actor, parameters.learning_rate, seed)
        self._base_fraction = 0.5 if num_actions == 2 else 0.0
        self.replay = ReplayBuffer(parameters.replay_measurements)
        self._executor = ThreadPoolExecutor(1, "fit")
        self._closing = threading.Event()
        self.running: Future[dict[str, float]] | None = None

    def plan(self, base: DensePolicy) -> CompilePlan:
        return CompilePlan("flip", (base,))

    def learn(self, rollout: Rollout, state: TrainingState) -> dict[str, float]:
        """Add flips to the replay buffer, and wait for a fit that was started."""
        if len(gains := rollout.gains):
            state.update_scale(gains)
            self.replay.add(tuple(rollout.compiles), rollout.flips)
        return self._end_fit()

    def start_candidate(self, state: TrainingState, repetition: int = 0) -> bool:
        """Start to fit the values to all present flips; return False if there are none.

        Args:
            repetition: number of the fit among those to the same flips, which have different random numbers.
        """
        if not len(self.replay):
            return False
        assert state.scale is not None  # flips exist, so it was measured
        flips, scale, number = self.replay.snapshot(), state.scale, (state.iteration, repetition)

        def fit() -> dict[str, float]:
            networks.load_dense(self.actor, self.initial)
            advantages = partial(compute_advantages, initial=self.initial, scale=scale, parameters=self.parameters)
            return self.fit(flips, advantages, number, self._closing)

        self.running = self._executor.submit(fit)
        return True

    def _end_fit(self) -> dict[str, float]:
        """Wait for the fit, if one was started, and use its weights; return the losses. Raises the fit's exception."""
        if self.running is None:
            return {}
        running, self.running = self.running, None
        losses = running.result()
        self.policy = self.candidate = self._read_policy()
        return losses

    def finish(self, state: TrainingState) -> None:
        """Fit the values to all flips `final_fits` times and average the weights."""
        fitted: list[DensePolicy] = []
        for repetition in range(self.parameters.final_fits):
            if self.start_candidate(state, repetition):
                self._end_fit()
                fitted.append(self.policy)
        if fitted:
            self.candidate = mean_policy(fitted)

    def close(self) -> None:
        """Have a fit end at its next step, and wait for it."""
        self._closing.set()
        self._executor.shutdown(wait=True)

    @property
    def segments(self) -> tuple[Segment, ...]:
        return self.replay.segments

    def resume(self, candidate: DensePolicy, segments: Sequence[Segment]) -> None:
        super().resume(candidate, segments)
        self.replay.restore(segments)

    def fit(
        self,
        flips: ReplayRows | ReplayBuffer,
        advantages: Callable[[ReplayRows], NDArray[np.float32]],
        number: tuple[int, int],
        cancelled: threading.Event | None = None,
    ) -> dict[str, float]:
        """Fit the network to all flips, starting from its present weights and a new Adam state.

        Args:
            flips: at least one.
            advantages: function from flips to float32, the value of the alternative minus that of the base's action.
            number: number of the fit and its repetition, which with the seed determine the random numbers.
            cancelled: checked before each step.

        Returns:
            Means over the fit of `value_loss` and of `explained_variance`, the fraction of the returns' mean square
            that the values explained before each step.

        Raises:
            UserError: the weights are no longer finite.
            CancelledError: the fit was cancelled; the weights are those of some step.
        """
        parameters = self.parameters
        size = min(parameters.minibatch_size, len(flips))
        steps = min(max(1, round(parameters.num_epochs * len(flips) / size)), parameters.max_steps)
        for variable in self.optimizer.variables:
            variable.assign(tf.zeros_like(variable))
        random = np.random.default_rng([self._seed, *number])
        average, averaged = [weight.numpy() for weight in self.weights], 0
        losses, explained = [], []
        for step in range(steps):
            if cancelled is not None and cancelled.is_set():
                raise CancelledError
            if step % BATCHES_PER_DRAW == 0:
                count = min(BATCHES_PER_DRAW, steps - step) * size
                drawn = flips.take(random.integers(0, len(flips), count))
                targets = advantages(drawn)
            self.optimizer.learning_rate.assign(parameters.learning_rate / (1 + 10 * step / steps))
            rows = slice(step % BATCHES_PER_DRAW * size, (step % BATCHES_PER_DRAW + 1) * size)
            target = targets[rows]
            columns = (drawn.observed[rows], drawn.action[rows], drawn.alternative[rows], target)
            losses.append(float(self._minibatch(*map(tf.constant, columns))))
            fraction = self._base_fraction
            returned = float(np.mean(target**2)) * (fraction**2 + (1 - fraction) ** 2) / 2
            explained.append(1 - losses[-1] / max(returned, 1e-12))
            if step >= steps * AVERAGED_FROM and (steps - 1 - step) % AVERAGED_EVERY == 0:
                averaged += 1
                average = [
                    mean + (weight.numpy() - mean) / averaged
                    for mean, weight in zip(average, self.weights, strict=True)
                ]
        for weight, mean in zip(self.weights, average, strict=True):
            weight.assign(mean)
        require_finite(self.weights)
        return {"value_loss": float(np.mean(losses)), "explained_variance": float(np.mean(explained))}

    @tf.function(autograph=False, reduce_retracing=True)  # no Python control flow on tensors
    def _minibatch(
        self, observed: tf.Tensor, action: tf.Tensor, alternative: tf.Tensor, advantage: tf.Tensor
    ) -> tf.Tensor:
        """Take a step on both actions of [B] decisions; return the mean squared error of their values, float32 []."""
        chosen = tf.concat([action, alternative], 0)  # [2 * B]
        returns = tf.concat([-self._base_fraction * advantage, (1 - self._base_fraction) * advantage], 0)
        variables = self.weights
        with tf.GradientTape() as tape:
            values = networks.logits(self.actor, tf.concat([observed, observed], 0), training=True)
            errors = tf.math.squared_difference(tf.gather(values, chosen, batch_dims=1), returns)
            loss = tf.reduce_mean(errors)
        gradients = [tf.clip_by_norm(grad, self.parameters.max_grad_norm) for grad in tape.gradient(loss, variables)]
        self.optimizer.apply_gradients(zip(gradients, variables, strict=True))
        self.step.assign_add(1)
        return loss
