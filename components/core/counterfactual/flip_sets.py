"""Chooses the flips that are measured in the same compile.

Flips that influence disjoint sets of functions do not disturb each other's measurement, so a compile contains as many
as possible. A few compiles measure all flips of a small module, and a random part of those of a large one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from components.core.counterfactual.flips import Flip

MAX_MEASUREMENTS = 2
"""Measurements of a flip per base compile: the second one shows how much others disturbed the first; a third adds
nothing."""


def estimate_uncertainty(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return minus the distance between the two greatest logits of each decision, float64 [N] of [N, actions]."""
    ordered = np.sort(logits.astype(np.float64), axis=1)
    return ordered[:, -2] - ordered[:, -1]


def choose_flip_sets(
    flips: Sequence[Flip], uncertainty: npt.NDArray[np.float64], count: int, random: np.random.Generator
) -> list[npt.NDArray[np.intp]]:
    """Return at most `count` sets of flips, fewer when all flips are in a set.

    Each set begins with flips that are in no set yet, in random order. In every other set, flips of several decisions
    precede the others: they influence more functions and would not fit in afterwards. Flips that are measured a second
    time follow, those that the policy is least sure of first.

    Args:
        uncertainty: float64 [flips], larger is less sure.
    """
    several = np.array([len(flip.decisions) > 1 for flip in flips], bool)
    unmeasured = random.permutation(len(flips)).tolist()
    least_sure = np.argsort(-uncertainty, kind="stable").tolist()
    measured = np.zeros(len(flips), np.int64)
    sets: list[npt.NDArray[np.intp]] = []
    while unmeasured and len(sets) < count:
        several_first = len(sets) % 2 == 0
        unmeasured.sort(key=lambda i: several[i] != several_first)  # stable, so random within each kind
        busy: set[int] = set()
        chosen: list[int] = []
        for i in [*unmeasured, *(j for j in least_sure if 0 < measured[j] < MAX_MEASUREMENTS)]:
            if busy.isdisjoint(flips[i].touches):
                busy |= flips[i].touches
                chosen.append(i)
        measured[chosen] += 1
        unmeasured = [i for i in unmeasured if not measured[i]]
        sets.append(np.sort(np.array(chosen, np.intp)))
    return sets
