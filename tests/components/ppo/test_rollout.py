"""The order in which modules come."""

import json

from hypothesis import given
from hypothesis import strategies as st

from components.ppo.rollout import Sampler

NAMES = [f"project/m{i}.o" for i in range(7)]


@given(st.integers(1, 10), st.integers(1, 40), st.integers(0, 2**32))
def test_every_module_comes_equally_often_and_never_twice_at_once(count, rounds, seed):
    sampler = Sampler(NAMES, seed)
    seen = []
    for _ in range(rounds):
        taken = sampler.take(count)
        assert len(set(taken)) == len(taken) == min(count, len(NAMES))
        seen += taken
    often = [seen.count(name) for name in NAMES]
    assert max(often) - min(often) <= 1


@given(st.integers(0, 5))
def test_restored_sampler_takes_what_the_first_would_have_taken(before):
    one, two = Sampler(NAMES, 1), Sampler(NAMES, 2)
    for _ in range(before):
        one.take(3)
    two.restore(json.loads(json.dumps(one.state())))
    assert [one.take(3) for _ in range(6)] == [two.take(3) for _ in range(6)]
