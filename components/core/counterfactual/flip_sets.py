"""Which flips share a counterfactual compile.

Flips whose influences are disjoint do not disturb each other's measurement, so a compile takes as many as fit. A small
module is exhausted in a few compiles; of a large one a random part is measured.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from components.core.counterfactual.influence import Flip

MAX_MEASUREMENTS = 2
"""Of one flip in one base: a second one tells how far others disturbed it, a third one nothing."""


def uncertainty(logits: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return minus the distance between the two greatest logits of each decision, float64 [N] of [N, actions]."""
    ordered = np.sort(logits.astype(np.float64), axis=1)
    return ordered[:, -2] - ordered[:, -1]


def choose_flip_sets(
    flips: Sequence[Flip],
    uncertainty: npt.NDArray[np.float64],
    count: int,
    random: np.random.Generator,
) -> list[npt.NDArray[np.intp]]:
    """Return at most `count` sets of flips, fewer when nothing unmeasured is left.

    Flips that no set has yet come first, in random order: those of several decisions, which touch more and would find
    no place behind the others, before them in every other set. Then come those that the policy is least sure of, which
    are measured once more.

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
