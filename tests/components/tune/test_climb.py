"""What a round of the search makes of its measurements."""

from __future__ import annotations

import numpy as np

from components.compiler.compile import Sample
from components.compiler.forced_decisions import Key
from components.tune.climb import unreached_of_base


def test_what_a_compile_did_not_come_to_is_told_by_the_base_s_numbers() -> None:
    """Forced are decisions of earlier rounds, of which the base may lack some, and flips."""
    keys: list[Key] = [("f", "g", 0), ("f", "g", 1), ("g", "h", 0)]
    forced: dict[Key, int] = {("gone", "g", 0): 1, ("g", "h", 0): 1, ("f", "g", 0): 0}
    samples = [Sample(unreached=np.array([0, 2])), Sample()]
    told = unreached_of_base(samples, [forced, forced], keys)
    assert [sample.unreached.tolist() for sample in told] == [[0], []]
