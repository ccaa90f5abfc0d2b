"""Which decisions are flipped together in one counterfactual compile.

Flips whose influences are disjoint do not disturb each other's measurement, so a compile takes as many as fit. A small
module is exhausted in a few compiles; of a large one a random part is measured.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

MAX_MEASUREMENTS = 2
"""Of one decision in one base: a second one tells how far others disturbed it, a third one nothing."""


def choose_flip_sets(
    changes: Sequence[frozenset[int] | None],
    touches: Sequence[frozenset[int]],
    uncertainty: npt.NDArray[np.float64],
    count: int,
    random: np.random.Generator,
) -> list[npt.NDArray[np.intp]]:
    """Return at most `count` sets of decisions to flip, fewer when nothing unmeasured is left.

    Decisions that no set has yet come first, in random order; then those that the policy is least sure of, which are
    measured once more.

    Args:
        changes, touches: by decision, see `influence.Influence`.
        uncertainty: float64 [N], larger is less sure.
    """
    measurable = np.array([i for i, changed in enumerate(changes) if changed is not None], np.intp)
    unmeasured = random.permutation(measurable).tolist()
    least_sure = measurable[np.argsort(-uncertainty[measurable], kind="stable")].tolist()
    measured = np.zeros(len(changes), np.int64)
    sets: list[npt.NDArray[np.intp]] = []
    while unmeasured and len(sets) < count:
        busy: set[int] = set()
        chosen: list[int] = []
        for i in [*unmeasured, *(j for j in least_sure if 0 < measured[j] < MAX_MEASUREMENTS)]:
            if busy.isdisjoint(touches[i]):
                busy |= touches[i]
                chosen.append(i)
        measured[chosen] += 1
        unmeasured = [i for i in unmeasured if not measured[i]]
        sets.append(np.sort(np.array(chosen, np.intp)))
    return sets
