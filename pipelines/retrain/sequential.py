"""Judging again and again: how sure a comparison must be, and on which modules it is made.

A deployed policy, or LLVM's heuristic as long as none is deployed, is compared with a new one every week, so that some
equal policy would look better by chance sooner or later. Two things hold against that:

- Alpha spending: the k-th comparison with what is deployed may promote by chance with probability ALPHA / (k (k + 1)),
  which sums to ALPHA over all k (as in Foster and Stine, "Alpha-investing", JRSS B 2008, without their rewards). A
  promotion begins a new series.
- Rotation: each week another half of the held-out modules judges, so that no policy is selected for suiting the same
  modules for ever.

`make bench`, part verdicts, simulates both; docs/retraining.md has the rates.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable

ALPHA = 0.05
"""Probability that any comparison with what is deployed promotes an equal one, two-sided as a 95% interval."""
_LEAST_ALPHA = 1e-12
"""Reached after 220,000 comparisons. Next to 1, floating-point numbers do not tell much smaller ones from 0."""
MIN_ROTATED = 40
"""With fewer held-out modules all of them judge: half of them would tell too little."""


def spent_alpha(comparison: int) -> float:
    """Return the share of ALPHA that the comparison may use; 1 is the first with this deployed policy."""
    return max(_LEAST_ALPHA, ALPHA / (comparison * (comparison + 1)))


def week_of(now_s: float) -> str:
    """Return the ISO week of a time in seconds since the epoch, such as "2026-W48"."""
    return time.strftime("%G-W%V", time.gmtime(now_s))


def rotated(modules: Iterable[str], week: str, seed: int) -> frozenset[str]:
    """Return the modules that judge in this week: half of them, or all if there are few."""
    names = frozenset(modules)
    if len(names) < MIN_ROTATED:
        return names
    ranked = sorted(names, key=lambda name: hashlib.sha256(f"{seed}\0{week}\0{name}".encode()).digest())
    return frozenset(ranked[: len(ranked) // 2])
