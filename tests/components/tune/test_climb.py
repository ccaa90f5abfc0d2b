"""What a round of the search makes of its measurements."""

from __future__ import annotations

import numpy as np

from components.core.compiler.compile import Sample
from components.core.compiler.forced_decisions import Key
from components.core.counterfactual.influence import Flip
from components.tune.climb import flips_unreached, unreached_of_base


def test_unreached_decisions_have_indices_of_the_base() -> None:
    """Forced are decisions of earlier rounds, of which the base may lack some, and flips."""
    keys: list[Key] = [("f", "g", 0), ("f", "g", 1), ("g", "h", 0)]
    forced: dict[Key, int] = {("gone", "g", 0): 1, ("g", "h", 0): 1, ("f", "g", 0): 0}
    samples = [Sample(unreached=np.array([0, 2])), Sample()]
    told = unreached_of_base(samples, [forced, forced], keys)
    assert [sample.unreached.tolist() for sample in told] == [[0], []]


def test_unreached_flips_count_as_tried() -> None:
    """Else a module would never be exhausted. What else a compile did not come to was not tried in it."""
    nothing: frozenset[int] = frozenset()
    pair, single, other = (Flip(np.array(decisions), 0, nothing, nothing) for decisions in ([0, 4], [2], [5]))
    samples = [Sample(unreached=np.array([1, 4])), Sample(unreached=np.array([2, 5]))]
    assert flips_unreached([[pair, single], [other]], samples) == {4, 5}
