"""The order in which modules come."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.ppo.module_sampler import MIN_WEIGHT, ModuleSampler, sampling_weights

NAMES = [f"project/m{i}.o" for i in range(7)]
ALIKE = dict.fromkeys(NAMES, 1.0)


@given(st.integers(1, 10), st.integers(1, 40), st.integers(0, 2**32))
def test_equal_weights_sample_equally_without_duplicates(count, rounds, seed):
    sampler = ModuleSampler(ALIKE, seed)
    seen = []
    for _ in range(rounds):
        taken = sampler.next_batch(count)
        assert len(set(taken)) == len(taken) == min(count, len(NAMES))
        seen += taken
    often = [seen.count(name) for name in NAMES]
    assert max(often) - min(often) <= 1


@given(st.integers(0, 5))
def test_restored_sampler_continues_exactly(before):
    one, two = ModuleSampler(ALIKE, 1), ModuleSampler(ALIKE, 2)
    for _ in range(before):
        one.next_batch(3)
    two.restore(json.loads(json.dumps(one.state())))
    assert [one.next_batch(3) for _ in range(6)] == [two.next_batch(3) for _ in range(6)]


def test_sampling_frequency_equals_weight():
    sampler = ModuleSampler({**ALIKE, NAMES[0]: 0.25}, 0)
    seen = [name for _ in range(2000) for name in sampler.next_batch(3)]
    assert seen.count(NAMES[0]) / seen.count(NAMES[1]) == pytest.approx(0.25, rel=0.15)


def test_large_modules_with_few_decisions_get_the_minimum_weight():
    weights = sampling_weights(np.array([1000, 1000, 1000, 1]), np.array([10_000, 10_000, 100_000, 500_000]))
    assert weights[:2] == pytest.approx([1, 1])
    assert MIN_WEIGHT == weights[3] < weights[2] < 0.5
