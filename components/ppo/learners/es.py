"""Evolution strategies: the policy's weights are perturbed, and move towards the perturbations that compiled smaller.

Salimans et al. 2017 (arXiv:1703.03864): antithetic perturbations, and the ranks of their returns in place of the
returns. This is how ml-compiler-opt's demo trains today (Trofin et al., blackbox optimization). It needs neither a log
nor credit: a perturbation's return is what whole modules came to under its most probable decisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import gin
import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from components.core.policy import networks
from components.ppo.learners.learner import Learner, require_finite, require_possible


@gin.configurable(module="mlgo")
@dataclass(frozen=True)
class EsParameters:
    """Hyperparameters, set by gin (components/ppo/gin/<problem>.gin).

    Attributes:
        learning_rate: of Adam, in the first iteration.
        decay_iterations: iterations after which it is half of that, a third after twice as many and so on.
        deviation: of the perturbations, which are normal and as large for every weight.
    """

    learning_rate: float = 1e-2
    decay_iterations: int = 100
    deviation: float = 0.02


class EsLearner(Learner):
    """An estimate of the gradient from perturbations, and Adam's step along it."""

    def __init__(
        self,
        num_features: int,
        num_actions: int,
        parameters: EsParameters,
        seed: int,
        masked: bool = False,
        scale: networks.InputScale | None = None,
    ) -> None:
        require_possible(parameters, {"decay_iterations": 1, "deviation": 1e-9})
        tf.random.set_seed(seed)
        self.parameters = parameters
        actor = networks.actor_network(num_features, num_actions, masked=masked, scale=scale)
        super().__init__(actor, parameters.learning_rate, seed)
        self._noise: list[NDArray[np.float32]] = []

    def perturb(self, count: int) -> Iterator[None]:
        """Give `actor` the weights of `count` perturbations in turn, an even number, and at the end its own again.

        Of each pair the second is the first's opposite.

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
        """Take one step.

        Args:
            returns: float64 [modules, perturbations] of the newest `perturb`, larger is better.
            iteration: its number, from 0.

        Returns:
            `learning_rate`; `gradient_norm` of the estimate.

        Raises:
            UserError: the weights are not finite any more.
        """
        rate = self.parameters.learning_rate / (1 + iteration / self.parameters.decay_iterations)
        self.optimizer.learning_rate.assign(rate)
        fitness = _ranks(returns).mean(axis=0)
        # Half of a pair's difference, over the number of pairs.
        share = ((fitness[0::2] - fitness[1::2]) / len(fitness)).astype(np.float32)
        descent = [-np.tensordot(share, noise, axes=1) / self.parameters.deviation for noise in self._noise]
        self.optimizer.apply_gradients(zip(map(tf.constant, descent), self.weights, strict=True))
        self.step.assign_add(1)
        require_finite(self.weights)
        norm = float(np.sqrt(sum(float((part.astype(np.float64) ** 2).sum()) for part in descent)))
        return {"gradient_norm": norm, "learning_rate": rate}


def _ranks(returns: NDArray[np.float64]) -> NDArray[np.float64]:
    """float64 [modules, perturbations]: ranks within a module from -0.5 to 0.5, the same for equal returns."""
    less = (returns[:, :, None] > returns[:, None, :]).sum(axis=2)
    more = (returns[:, :, None] < returns[:, None, :]).sum(axis=2)
    return (less - more) / (2 * max(returns.shape[1] - 1, 1))
