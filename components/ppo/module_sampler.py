"""Sampling of the modules that an iteration compiles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST_WEIGHT = 0.3


def sampling_weights(decisions: NDArray[np.int64], compile_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """How often each module takes part in a round, from LEAST_WEIGHT to 1: by the root of its decisions per second.

    What is scarce is compile time, and what is learned from are decisions: a large C file of a few hot loops compiles
    for seconds and decides a hundred times. So as to estimate a sum over strata of unlike cost (Neyman's allocation), a
    module is taken in proportion to the root of what it tells a second. The upper quarter takes part in every round.
    Less than LEAST_WEIGHT is taken of nothing: a policy that hardly saw a kind of code makes that kind larger.
    """
    rate = np.sqrt(decisions / np.maximum(compile_s, 1e-3))
    return np.clip(rate / np.percentile(rate, 75), LEAST_WEIGHT, 1.0)


class ModuleSampler:
    """Goes through the modules in random order, round by round.

    Args:
        weights: module name -> probability that the module takes part in a round.
        seed: same seed, same order.
    """

    def __init__(self, weights: Mapping[str, float], seed: int) -> None:
        self._names = sorted(weights)
        self._weights = np.array([weights[name] for name in self._names])
        self._random = np.random.default_rng(seed)
        self._left: list[str] = []

    def next_batch(self, count: int) -> list[str]:
        """The next `count` names, all different unless there are fewer names than that."""
        taken: list[str] = []
        later: list[str] = []
        while len(taken) < min(count, len(self._names)):
            if not self._left:
                part = np.flatnonzero(self._random.random(len(self._names)) < self._weights)
                self._left = [self._names[i] for i in self._random.permutation(part)]
                continue
            name = self._left.pop()
            # Where one round ends and the next begins a name may come twice; its turn is not lost.
            (later if name in taken else taken).append(name)
        self._left += later
        return taken

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"left": list(self._left), "random": self._random.bit_generator.state}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self._left = list(state["left"])
        self._random.bit_generator.state = state["random"]
