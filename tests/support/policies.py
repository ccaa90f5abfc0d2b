"""Weights of policies that were not trained."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Layers = tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...]


def random_layers(units: Sequence[int], seed: int | np.random.Generator = 0, scaled: bool = False) -> Layers:
    """Return dense layers between these numbers of units, with normal weights and biases of 0.

    Args:
        scaled: Whether the variance is 2 / inputs, so that logits are small; else it is 1.
    """
    random = np.random.default_rng(seed)
    return tuple(
        (random.normal(0, (2 / a) ** 0.5 if scaled else 1, (a, b)).astype(np.float32), np.zeros(b, np.float32))
        for a, b in itertools.pairwise(units)
    )
