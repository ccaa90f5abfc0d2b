"""The interface of the learners, and their common state: a network, Adam and a random generator.

The training loop asks a learner what an iteration compiles (`plan`), lets it update its policy with what the compiles
yield (`learn`), and validates its `candidate`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, ClassVar, Literal

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tf_agents.networks import network

from components.core.policy.dense import DensePolicy
from components.core.policy.tf import networks
from components.platform.errors import UserError
from components.ppo.learners.replay import Segment
from components.ppo.policy_weights import ema_update
from components.ppo.rollout import CompilePlan, Rollout
from components.ppo.training_state import TrainingState


class Learner(ABC):
    """Updates the policy that training starts from. `state`, `shuffle_state`, `candidate` and `segments` are all state.

    Attributes:
        compiles_with: which policy compiles: the "current" one, which an iteration updates, or the "best" one so far.
        prefers_final: publish the last candidate unless it is worse than the best policy beyond noise.
        initial: the policy that training starts from.
        policy: the policy of the present weights.
        candidate: the policy that is validated next, and published if it is the best one.

    Args:
        actor: network whose trainable weights are learned.
        learning_rate: initial learning rate of Adam.
    """

    compiles_with: ClassVar[Literal["current", "best"]] = "current"
    prefers_final: ClassVar[bool] = False
    initial: DensePolicy
    policy: DensePolicy
    candidate: DensePolicy

    def __init__(self, actor: network.Network, learning_rate: float, seed: int) -> None:
        self.actor = actor
        self.optimizer = tf.keras.optimizers.Adam(learning_rate, epsilon=1e-5)
        self.step = tf.Variable(0, dtype=tf.int64, name="train_step")
        self._shuffle = np.random.default_rng(seed)
        self._ema_decay = 0.0
        self.optimizer.build(self.weights)

    def start_from(self, initial: DensePolicy, ema_decay: float = 0.0) -> None:
        """Set the weights to those of `initial`. ema_decay: of the candidate's weights, per iteration."""
        networks.load_dense(self.actor, initial)
        self.initial = self.policy = self.candidate = initial
        self._ema_decay = ema_decay

    @abstractmethod
    def plan(self, base: DensePolicy) -> CompilePlan:
        """Return what an iteration compiles. base: the policy that `compiles_with` names."""

    @abstractmethod
    def learn(self, rollout: Rollout, state: TrainingState) -> dict[str, float]:
        """Update the policy with the compiles of the plan, and the scale in `state`; return losses by name."""

    def start_candidate(self, state: TrainingState) -> bool:
        """Start to fit the candidate of a validation that is due, while the next iteration compiles.

        Returns:
            Whether a fit was started: the next `learn` ends it. Otherwise the present candidate is validated.
        """
        return False

    def finish(self, state: TrainingState) -> None:  # noqa: B027 (most learners have nothing to do)
        """Make the last candidate of a training."""

    def close(self) -> None:  # noqa: B027
        """Cancel a candidate that is being made, and wait for its end."""

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The replay buffer for a checkpoint; empty for learners without one."""
        return ()

    def resume(self, candidate: DensePolicy, segments: Sequence[Segment]) -> None:
        """Continue from a checkpoint, after `restore`."""
        self.policy, self.candidate = self._read_policy(), candidate

    def _read_policy(self) -> DensePolicy:
        """Return the policy with the present weights of the network."""
        like = self.initial
        return networks.to_dense(self.actor, like.buckets, like.features, like.problem, like.limits)

    def _average(self, iteration: int) -> None:
        """Update `policy` and the candidate, the moving average of its weights, after an iteration's update."""
        self.policy = self._read_policy()
        # Less in the first iterations, as in tf.train.ExponentialMovingAverage: they must not weigh the start most.
        decay = min(self._ema_decay, (1 + iteration) / (10 + iteration))
        self.candidate = ema_update(self.candidate, self.policy, decay)

    @property
    def weights(self) -> list[tf.Variable]:
        """Trainable weights, from the first layer on."""
        return list(self.actor.trainable_weights)

    def _state_variables(self) -> dict[str, tf.Variable]:
        named = {f"weights/{i}": v for i, v in enumerate(self.actor.variables)}
        named |= {f"optimizer/{i}": v for i, v in enumerate(self.optimizer.variables)}
        return {**named, "step": self.step}

    def state(self) -> dict[str, NDArray[Any]]:
        """Return weights, Adam's moments, learning rate and counter, and the number of updates, for a checkpoint."""
        return {name: variable.numpy() for name, variable in self._state_variables().items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore what `state` returned. UserError if the state is for another network."""
        variables = self._state_variables()
        if {name: value.shape for name, value in state.items()} != {n: tuple(v.shape) for n, v in variables.items()}:
            raise UserError(
                "the checkpoint is for another network than the configured one",
                "use the gin settings that it was trained with, or another --root-dir",
            )
        for name, variable in variables.items():
            variable.assign(state[name])

    @property
    def shuffle_state(self) -> dict[str, Any]:
        """State of the random generator, as JSON."""
        return dict(self._shuffle.bit_generator.state)

    @shuffle_state.setter
    def shuffle_state(self, state: dict[str, Any]) -> None:
        self._shuffle.bit_generator.state = state


def require_possible(parameters: Any, least: Mapping[str, float]) -> None:
    """Raise UserError unless all hyperparameters of a dataclass are finite and at least 0, or at least `least`."""
    # Not in __post_init__, because gin would wrap the error.
    for field in fields(parameters):
        name, whole = f"{type(parameters).__name__}.{field.name}", field.type in ("int", int)
        require_number(name, getattr(parameters, field.name), least.get(field.name, 0), whole)


def require_number(name: str, value: Any, least: float = 0, whole: bool = False) -> None:
    """Raise UserError unless a hyperparameter is a finite (whole) number of at least `least`."""
    if not (isinstance(value, int if whole else int | float) and least <= value < float("inf")):
        raise UserError(
            f"{name} is {value!r}, and must be a {'whole ' if whole else ''}number of at least {least}",
            "correct the gin file or the --gin-binding",
        )


def require_finite(variables: Iterable[tf.Variable]) -> None:
    """Raise UserError if a weight is not finite."""
    if not all(np.isfinite(variable.numpy()).all() for variable in variables):
        raise UserError(
            "the training diverged: weights are no longer finite",
            "lower the learning rate (--gin-binding) and train in another --root-dir",
        )
