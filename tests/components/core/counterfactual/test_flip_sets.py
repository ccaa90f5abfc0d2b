"""Flips that share a compile do not disturb each other, and small modules are exhausted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.counterfactual.flip_sets import MAX_MEASUREMENTS, choose_flip_sets
from components.core.counterfactual.flips import Flip

functions = st.frozensets(st.integers(0, 12), min_size=1, max_size=4)


def flip(touches: frozenset[int], decisions: int = 1) -> Flip:
    return Flip(np.arange(decisions), 1, touches)


@given(st.lists(st.tuples(functions, st.integers(1, 3)), max_size=30), st.integers(1, 8), st.integers(0, 9))
def test_sets_are_disjoint_reproducible_and_prefer_new_flips(touched, count, seed) -> None:
    flips = [flip(*each) for each in touched]
    unsure = np.arange(len(flips), dtype=np.float64)

    def choose():
        return choose_flip_sets(flips, unsure, count, np.random.default_rng(seed))

    sets = choose()
    assert [chosen.tolist() for chosen in sets] == [chosen.tolist() for chosen in choose()]
    assert len(sets) <= count
    measured = np.zeros(len(flips), int)
    for chosen in sets:
        touches = [flips[i].touches for i in chosen]
        assert len(chosen) and sum(map(len, touches)) == len(frozenset().union(*touches))
        assert (measured[chosen] == 0).any()  # a compile without anything new would be wasted
        measured[chosen] += 1
    assert measured.max(initial=0) <= MAX_MEASUREMENTS
    if len(sets) < count:
        assert np.count_nonzero(measured) == len(flips)


@pytest.mark.parametrize("unsure", [3, 4])
def test_remaining_room_goes_to_uncertain_decisions(unsure: int) -> None:
    """Three flips exclude each other, so do two others: what is measured with the third is measured again."""
    flips = [flip(frozenset({9})) for _ in range(3)] + [flip(frozenset({8})) for _ in range(2)]
    uncertainty = np.array([0, 0, 0, 3, 3], np.float64)
    uncertainty[unsure] = 5
    for seed in range(20):
        sets = choose_flip_sets(flips, uncertainty, 5, np.random.default_rng(seed))
        assert [len(chosen) for chosen in sets] == [2, 2, 2]
        assert sorted(i for chosen in sets[:2] for i in chosen if i > 2) == [3, 4]
        assert unsure in sets[2]


def test_joint_flips_come_first_in_every_other_set() -> None:
    several = [flip(frozenset({0, 1, 2}), 3), flip(frozenset({0, 1, 3}), 2)]
    flips = [*(flip(frozenset({i % 4})) for i in range(40)), *several]
    for seed in range(5):
        sets = choose_flip_sets(flips, np.zeros(42), 4, np.random.default_rng(seed))
        assert [bool({40, 41} & set(chosen.tolist())) for chosen in sets] == [True, False, True, False]
