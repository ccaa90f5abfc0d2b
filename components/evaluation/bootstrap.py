"""How sure a reduction is: percentile bootstrap over modules."""

from __future__ import annotations

import numpy as np

RESAMPLES = 10_000
_INDICES_AT_ONCE = 4_000_000  # int64 indices held at a time: 32 MB


def reduction_interval(baseline_bytes: np.ndarray, other_bytes: np.ndarray, seed: int) -> list[float] | None:
    """95% interval of the total reduction, in percent, had other modules of the same kind been drawn.

    Modules are resampled with replacement and the reduction is computed on each resample's totals (a ratio of sums,
    so big modules weigh as much as they do in the reported figure). Modules of one project resemble each other, so
    read the interval as one over modules like these, not over arbitrary projects.

    Args:
        baseline_bytes: int64 [N].
        other_bytes: int64 [N], same modules.
        seed: makes the interval the same in every run over the same sizes.

    Returns:
        [low, high], or None where there are fewer than two modules or no text.
    """
    count = int(baseline_bytes.size)
    if count < 2 or not baseline_bytes.sum():
        return None
    generator = np.random.default_rng(seed)
    rounds_at_once = max(1, _INDICES_AT_ONCE // count)
    reductions = []
    done = 0
    while done < RESAMPLES:
        rounds = min(rounds_at_once, RESAMPLES - done)
        drawn = generator.integers(0, count, size=(rounds, count))
        baseline = baseline_bytes[drawn].sum(axis=1)  # [rounds]
        other = other_bytes[drawn].sum(axis=1)
        has_text = baseline > 0
        reductions.append(1.0 - other[has_text] / baseline[has_text])
        done += rounds
    low, high = np.percentile(np.concatenate(reductions), [2.5, 97.5])
    return [100.0 * float(low), 100.0 * float(high)]
