"""Confidence intervals of reductions: percentile bootstrap over modules."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
Numbers = NDArray[np.int64] | NDArray[np.float64]
_INDICES_AT_ONCE = 4_000_000  # int64 indices held at a time: 32 MB


def reduction_interval(baseline_bytes: Numbers, other_bytes: Numbers, seed: int) -> list[float] | None:
    """Return the 95% interval of the total reduction, in percent, over draws of modules of the same kind.

    Modules are resampled with replacement and the reduction is computed on each resample's totals (a ratio of sums,
    so big modules weigh as much as they do in the reported figure). Modules of one project resemble each other, so
    read the interval as one over modules like these, not over arbitrary projects.

    Args:
        baseline_bytes: [N].
        other_bytes: [N], same modules.
        seed: makes the interval the same in every run over the same sizes.

    Returns:
        [low, high]; None if there are fewer than two modules or no text.
    """
    ratios = _ratios(other_bytes, baseline_bytes, seed)
    return None if ratios is None else _interval(1.0 - ratios)


def mean_reduction_interval(
    log_factors: NDArray[np.float64], module: NDArray[np.int64], seed: int
) -> list[float] | None:
    """Return the 95% interval, in percent, of the reduction that is the geometric mean over functions.

    Modules are resampled, each with all its functions (a cluster bootstrap), because functions of a module resemble
    each other and an inline function is in many modules.

    Args:
        log_factors: float64 [F], log(score / baseline) of each function, see geometric_mean.py.
        module: int64 [F], the module of each function.
        seed: makes the interval the same in every run over the same scores.

    Returns:
        [low, high]; None if there are fewer than two modules.
    """
    _, number = np.unique(module, return_inverse=True)
    ratios = _ratios(np.bincount(number, weights=log_factors), np.bincount(number), seed)  # a mean is a ratio of sums
    return None if ratios is None else _interval(-np.expm1(ratios))


def _ratios(numerators: Numbers, denominators: Numbers, seed: int) -> NDArray[np.float64] | None:
    """Return the ratio of sums of each resample, float64 [RESAMPLES], fewer if sums are 0; inputs are [N modules].

    None if there are fewer than two modules, or all denominators are 0."""
    count = int(denominators.size)
    if count < 2 or not denominators.sum():
        return None
    generator = np.random.default_rng(seed)
    rounds_at_once = max(1, _INDICES_AT_ONCE // count)
    ratios: list[NDArray[np.float64]] = []
    done = 0
    while done < RESAMPLES:
        rounds = min(rounds_at_once, RESAMPLES - done)
        drawn = generator.integers(0, count, size=(rounds, count))
        below = denominators[drawn].sum(axis=1)  # [rounds]
        above = numerators[drawn].sum(axis=1)
        ratios.append(above[below > 0] / below[below > 0])
        done += rounds
    return np.concatenate(ratios)


def _interval(reductions: NDArray[np.float64]) -> list[float]:
    low, high = np.percentile(reductions, [2.5, 97.5])
    return [100.0 * float(low), 100.0 * float(high)]
