"""Fits values of flips in a thread while an iteration compiles."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from components.core.policy.dense import DensePolicy
from components.core.policy.tf import networks
from components.ppo.experience import flip_returns
from components.ppo.learners.dqn import DqnLearner
from components.ppo.learners.replay import ReplayBuffer, ReplayRows


class BackgroundFit:
    """At most one fit of a learner to a replay buffer at a time.

    A fit reads nothing that an iteration changes, and its random numbers depend only on the seed and its number.
    Nothing else may use the learner between `start` and `finish`.

    Args:
        initial: the policy whose weights every fit starts from.
        problem: name of the optimization problem.
    """

    def __init__(self, learner: DqnLearner, initial: DensePolicy, problem: str) -> None:
        self._learner, self._initial, self._problem = learner, initial, problem
        self._executor = ThreadPoolExecutor(1, "fit")
        self._closing = threading.Event()
        self.running: Future[dict[str, float]] | None = None

    def start(self, replay: ReplayBuffer, number: int, scale: float, repetition: int = 0) -> None:
        """Start to fit the values to all flips that are in `replay` now.

        Args:
            number, repetition: of the fit, for its random numbers.
            scale: of gains, see `update_scale`.
        """
        learner, initial, flips = self._learner, self._initial, replay.snapshot()

        def returns(part: ReplayRows) -> NDArray[np.float32]:
            return flip_returns(part, initial, scale, learner.parameters, self._problem)

        def fit() -> dict[str, float]:
            networks.load_dense(learner.actor, initial)
            return learner.fit(flips, returns, (number, repetition), self._closing)

        self.running = self._executor.submit(fit)

    def finish(self) -> dict[str, float] | None:
        """Wait for the fit and return its losses; None if none was started. Raises the fit's exception."""
        if self.running is None:
            return None
        running, self.running = self.running, None
        return running.result()

    def cancel(self) -> None:
        """Have a fit end at its next step."""
        self._closing.set()

    def close(self) -> None:
        """Cancel a fit and wait for its end."""
        self.cancel()
        self._executor.shutdown(wait=True)
