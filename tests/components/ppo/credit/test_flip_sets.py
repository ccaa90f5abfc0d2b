"""Flips that share a compile do not disturb each other, and small modules are exhausted."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from components.ppo.credit.flip_sets import MAX_MEASUREMENTS, choose_flip_sets

functions = st.frozensets(st.integers(0, 12), min_size=1, max_size=4)


@given(st.lists(st.one_of(st.none(), functions), max_size=30), st.integers(1, 8), st.integers(0, 9))
def test_sets_are_disjoint_new_first_and_the_same_for_a_seed(changes, count, seed) -> None:
    touches = [changed or frozenset({0}) for changed in changes]
    unsure = np.arange(len(changes), dtype=np.float64)

    def choose():
        return choose_flip_sets(changes, touches, unsure, count, np.random.default_rng(seed))

    sets = choose()
    assert [chosen.tolist() for chosen in sets] == [chosen.tolist() for chosen in choose()]
    assert len(sets) <= count
    measured = np.zeros(len(changes), int)
    for chosen in sets:
        assert len(chosen) and all(changes[i] is not None for i in chosen)
        assert sum(len(touches[i]) for i in chosen) == len(frozenset().union(*(touches[i] for i in chosen)))
        assert (measured[chosen] == 0).any()  # a compile without anything new would be wasted
        measured[chosen] += 1
    assert measured.max(initial=0) <= MAX_MEASUREMENTS
    possible = sum(changed is not None for changed in changes)
    if len(sets) < count:
        assert np.count_nonzero(measured) == possible


def test_room_that_is_left_goes_to_what_the_policy_is_least_sure_of() -> None:
    changes = [frozenset({i}) for i in range(4)]
    touches = [frozenset({i, 9}) if i in (0, 1) else frozenset({i}) for i in range(4)]
    first, second = choose_flip_sets(changes, touches, np.array([0.0, 0, 3, 5]), 5, np.random.default_rng(0))
    assert {0, 1} & set(first) != {0, 1} & set(second)
    assert set(first) >= {2, 3} and set(second) >= {2, 3}
