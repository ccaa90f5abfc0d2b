"""Evolution strategies: moves the policy's weights towards random perturbations that compile to better code.

Salimans et al. 2017 (arXiv:1703.03864), with antithetic perturbations and ranks of returns. ml-compiler-opt's demo
trains this way today (Trofin et al., blackbox optimization). It needs no credit assignment, and logs only for scores:
the return of a perturbation is the outcome of whole modules under its greedy decisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import gin
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray
from tf_agents.networks import network

from components.core.policy.dense import DensePolicy
from components.ppo.learners.learner import Learner, require_finite, require_possible
from components.ppo.rollout import CompilePlan, Rollout
from components.ppo.training_state import TrainingState


@gin.configurable(module="mlgo")
@dataclass(frozen=True)
class EsParameters:
    """Hyperparameters, set by gin (components/ppo/gin/<problem>.gin).

    Attributes:
        learning_rate: Adam's learning rate in the first iteration.
        decay_iterations: iterations after which the learning rate is halved; after twice as many it is a third.
        deviation: standard deviation of the normal perturbations, the same for every weight.
    """

    learning_rate: float = 1e-2
    decay_iterations: int = 100
    deviation: float = 0.02


class EsLearner(Learner):
    """Estimates the gradient from perturbations and updates the weights with Adam.

    Args:
        perturbations: number of perturbed policies per iteration, even.
    """

    def __init__(self, actor: network.Network, parameters: EsParameters, seed: int, perturbations: int = 2) -> None:
        require_possible(parameters, {"decay_iterations": 1, "deviation": 1e-9})
        self.parameters = parameters
        super().__init__(actor, parameters.learning_rate, seed)
        self._perturbations = perturbations
        self._noise: list[NDArray[np.float32]] = []

    def plan(self, base: DensePolicy) -> CompilePlan:
        return CompilePlan("compare", tuple(self._read_policy() for _ in self.perturb(self._perturbations)))

    def learn(self, rollout: Rollout, state: TrainingState) -> dict[str, float]:
        losses = self.update(rollout.rewards, state.iteration) if rollout.rewards.size else {}
        self._average(state.iteration)
        return losses

    def perturb(self, count: int) -> Iterator[None]:
        """Set the weights of `actor` to `count` perturbations in turn, and at the end to the original ones.

        `count` is even; the second perturbation of each pair is the opposite of the first.

        Raises:
            UserError: a perturbed weight is not finite.
        """
        weights = [variable.numpy() for variable in self.weights]
        self._noise = [
            self._shuffle.standard_normal((count // 2, *array.shape)).astype(np.float32) for array in weights
        ]
        try:
            for i in range(count):
                step = self.parameters.deviation * (-1 if i % 2 else 1)
                for variable, array, noise in zip(self.weights, weights, self._noise, strict=True):
                    variable.assign(array + step * noise[i // 2])
                require_finite(self.weights)
                yield
        finally:
            for variable, array in zip(self.weights, weights, strict=True):
                variable.assign(array)

    def update(self, returns: NDArray[np.float64], iteration: int) -> dict[str, float]:
        """Take a step. UserError if the weights are no longer finite.

        Args:
            returns: float64 [modules, perturbations] of the last `perturb`, larger is better.
            iteration: number of the iteration, from 0.

        Returns:
            `learning_rate` and `gradient_norm`.
        """
        rate = self.parameters.learning_rate / (1 + iteration / self.parameters.decay_iterations)
        self.optimizer.learning_rate.assign(rate)
        fitness = _ranks(returns).mean(axis=0)
        # Half of the difference of each pair, divided by the number of pairs.
        differences = ((fitness[0::2] - fitness[1::2]) / len(fitness)).astype(np.float32)
        descent = [-np.tensordot(differences, noise, axes=1) / self.parameters.deviation for noise in self._noise]
        self.optimizer.apply_gradients(zip(map(tf.constant, descent), self.weights, strict=True))
        self.step.assign_add(1)
        require_finite(self.weights)
        norm = float(np.sqrt(sum(float((part.astype(np.float64) ** 2).sum()) for part in descent)))
        return {"gradient_norm": norm, "learning_rate": rate}


def _ranks(returns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return float64 [modules, perturbations], ranks within a module from -0.5 to 0.5, equal for equal returns."""
    less = (returns[:, :, None] > returns[:, None, :]).sum(axis=2)
    more = (returns[:, :, None] < returns[:, None, :]).sum(axis=2)
    return (less - more) / (2 * max(returns.shape[1] - 1, 1))
