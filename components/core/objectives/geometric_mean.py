"""Aggregates the scores of functions.

Scores of different functions are not comparable: a function with three nested loops has a million times the score of
another one. Therefore a change is measured as a factor, and many changes as the geometric mean of their factors, as for
benchmarks in different units (Fleming and Wallace 1986, doi:10.1145/5666.5673). All functions have the same weight, and
the result does not depend on which of two policies is the baseline. FLOOR is added to each score: a cost that occurs
less than about once per call is irrelevant, and a score may be 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FLOOR = 1.0
"""LLVM's score of a store in a block that is executed once per call."""

Float64 = NDArray[np.float64]


def log_scores(scores: ArrayLike) -> Float64:
    """Return log(score + FLOOR), float64 of the shape of `scores`."""
    logarithms: Float64 = np.log(np.asarray(scores, dtype=np.float64) + FLOOR)
    return logarithms


def geometric_mean_reduction(log_factors: Float64) -> float:
    """Return 1 - the geometric mean of factors.

    Args:
        log_factors: float64 [N], N > 0: `log_scores` of scores - `log_scores` of baselines.
    """
    return float(-np.expm1(log_factors.mean()))
