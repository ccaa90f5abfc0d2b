"""Base class of the learners: a network, Adam and a random generator, saved and restored together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tf_agents.networks import network

from components.platform.errors import UserError


class Learner:
    """A policy network with Adam. `state` and `shuffle_state` contain all state.

    Args:
        actor: network whose trainable weights are learned.
        learning_rate: initial learning rate of Adam.
        seed: seed of the random generator.
    """

    def __init__(self, actor: network.Network, learning_rate: float, seed: int) -> None:
        self.actor = actor
        self.optimizer = tf.keras.optimizers.Adam(learning_rate, epsilon=1e-5)
        self.step = tf.Variable(0, dtype=tf.int64, name="train_step")
        self._shuffle = np.random.default_rng(seed)
        self.optimizer.build(self.weights)

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
        """Restore what `state` returned.

        Raises:
            UserError: the state is for another network.
        """
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
        value, lower = getattr(parameters, field.name), least.get(field.name, 0)
        whole = field.type in ("int", int)
        if not (isinstance(value, int if whole else int | float) and lower <= value < float("inf")):
            kind = "whole number" if whole else "number"
            raise UserError(
                f"{type(parameters).__name__}.{field.name} is {value!r}, and must be a {kind} of at least {lower}",
                "correct the gin file or the --gin-binding",
            )


def require_finite(variables: Iterable[tf.Variable]) -> None:
    """Raise UserError if a weight is not finite."""
    if not all(np.isfinite(variable.numpy()).all() for variable in variables):
        raise UserError(
            "the training diverged: weights are no longer finite",
            "lower the learning rate (--gin-binding) and train in another --root-dir",
        )
