"""The measurements of a round of the search."""

from __future__ import annotations

import numpy as np

from components.core.compiler.forced_decisions import Key
from components.core.compiler.sample import Sample
from components.core.counterfactual.flips import Flip
from components.tune.climb import list_unreached_flips, number_unreached_by_base


def test_unreached_decisions_have_indices_of_the_base() -> None:
    """Forced decisions are flips, and decisions of earlier rounds, some of which the base may lack."""
    keys: list[Key] = [("f", "g", 0), ("f", "g", 1), ("g", "h", 0)]
    forced: dict[Key, int] = {("gone", "g", 0): 1, ("g", "h", 0): 1, ("f", "g", 0): 0}
    samples = [Sample(unreached=np.array([0, 2])), Sample()]
    converted = number_unreached_by_base(samples, [forced, forced], keys)
    assert [sample.unreached.tolist() for sample in converted] == [[0], []]


def test_unreached_flips_count_as_tried() -> None:
    """Otherwise a module is never exhausted. Other decisions that a compile did not reach were not tried in it."""
    nothing: frozenset[int] = frozenset()
    pair, single, other = (Flip(np.array(decisions), 1, nothing) for decisions in ([0, 4], [2], [5]))
    samples = [Sample(unreached=np.array([1, 4])), Sample(unreached=np.array([2, 5]))]
    assert list_unreached_flips([[pair, single], [other]], samples) == {4, 5}
