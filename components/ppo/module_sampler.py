"""Sampling of the modules that an iteration compiles, those that the previous policy regressed more often."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from components.platform.storage.input_files import read_json, typed

MIN_WEIGHT = 0.3


def sampling_weights(decisions: NDArray[np.int64], bitcode_bytes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the probability that each module is part of a round, from MIN_WEIGHT to 1.

    Compile time is scarce, and training learns from decisions: a large C file with a few hot loops compiles for seconds
    and has a hundred decisions. As in Neyman's allocation for strata of unequal cost, a module is sampled in proportion
    to the square root of its decisions per cost. The cost is the size of the bitcode, not the measured time, so that a
    seed selects the same modules on every machine, whatever else runs there. The upper quarter is part of every round.
    No module has less than MIN_WEIGHT, because a policy enlarges kinds of code that it has hardly seen.

    Args:
        decisions, bitcode_bytes: [modules].
    """
    rate = np.sqrt(decisions / np.maximum(bitcode_bytes, 1))
    return np.clip(rate / np.percentile(rate, 75), MIN_WEIGHT, 1.0)


class ModuleSampler:
    """Iterates over the modules in random order, in rounds.

    Args:
        weights: module name -> probability that the module is part of a round.
        seed: determines the order.
    """

    def __init__(self, weights: Mapping[str, float], seed: int) -> None:
        self._names = sorted(weights)
        self._weights = np.array([weights[name] for name in self._names])
        self._random = np.random.default_rng(seed)
        self._left: list[str] = []

    def next_batch(self, count: int) -> list[str]:
        """Return the next `count` names, all different; fewer if there are fewer modules."""
        batch: list[str] = []
        postponed: list[str] = []
        while len(batch) < min(count, len(self._names)):
            if not self._left:
                part = np.flatnonzero(self._random.random(len(self._names)) < self._weights)
                self._left = [self._names[i] for i in self._random.permutation(part)]
                continue
            name = self._left.pop()
            # Across the border of two rounds a name may occur twice; its second turn is postponed.
            (postponed if name in batch else batch).append(name)
        self._left += postponed
        return batch

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"left": list(self._left), "random": self._random.bit_generator.state}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned."""
        self._left = list(state["left"])
        self._random.bit_generator.state = state["random"]


class _State(Struct):
    """The state of `mlgo retrain`."""

    regressed: tuple[str, ...]


_MODULES: Any = _State | tuple[str, ...]


def read_oversampling(path: Path) -> tuple[str, ...]:
    """Return the module names in a JSON list, or in an object's list "regressed". UserError for other documents."""
    remedy = "pass a JSON list, or mlgo retrain's state"
    read: _State | tuple[str, ...] = typed(read_json(path, remedy), _MODULES, path, "a list of modules", remedy)
    return read.regressed if isinstance(read, _State) else read


def oversampled(names: Collection[str], trained: Collection[str]) -> set[str]:
    """Return the training modules that `names` selects.

    A module that is not trained on, because it was held out when it regressed, selects the modules of its directory.
    """
    folders = {str(PurePosixPath(name).parent) for name in names if name not in trained} - {"."}
    return {name for name in trained if name in names or str(PurePosixPath(name).parent) in folders}
