"""What many scores come to, where each function has one of its own.

Scores of different functions do not compare: that of a function with three nested loops is a million times another's.
So what counts of a score is the factor by which it changed, and of many the geometric mean of the factors, as for
benchmarks in different units (Fleming and Wallace 1986, doi:10.1145/5666.5673). It makes all functions count alike, and
says the same whichever of two policies is the baseline. To each score FLOOR is added: what a function spends less
than about once a call is of no consequence, and a score may be 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FLOOR = 1.0
"""What LLVM's score counts for a store in a block that is executed once a call."""

Float64 = NDArray[np.float64]


def logs(scores: ArrayLike) -> Float64:
    """float64 of the shape of `scores`: log(score + FLOOR)."""
    return np.log(np.asarray(scores, dtype=np.float64) + FLOOR)


def reduction(log_factors: Float64) -> float:
    """1 - the geometric mean of factors, float64 [N], N > 0: `logs` of scores - `logs` of baselines."""
    return float(-np.expm1(log_factors.mean()))
