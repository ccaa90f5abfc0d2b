"""Coverage, bounds and reproducibility of the bootstrap interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.objectives.bootstrap import reduction_interval


def test_equal_changes_give_an_interval_of_zero_width() -> None:
    baseline = np.array([100, 2000, 30000])
    assert reduction_interval(baseline, baseline * 9 // 10, seed=0) == pytest.approx([10.0, 10.0])


def test_same_seed_same_interval() -> None:
    generator = np.random.default_rng(5)
    baseline = generator.integers(100, 10_000, 60)
    policy = (baseline * generator.uniform(0.8, 1.1, 60)).astype(np.int64)
    assert reduction_interval(baseline, policy, 7) == reduction_interval(baseline, policy, 7)
    assert reduction_interval(baseline, policy, 7) != reduction_interval(baseline, policy, 8)


def test_interval_has_nominal_coverage() -> None:
    generator = np.random.default_rng(3)
    covered = 0
    for trial in range(60):
        baseline = generator.integers(1_000, 5_000, 80)
        reward = generator.normal(0.02, 0.05, 80)
        low, high = reduction_interval(baseline, np.round(baseline * (1 - reward)).astype(np.int64), trial) or (0, 0)
        covered += low <= 2.0 <= high
    assert 50 <= covered <= 60


def test_too_few_modules_have_no_interval() -> None:
    assert reduction_interval(np.array([10]), np.array([9]), 0) is None
    assert reduction_interval(np.array([0, 0]), np.array([0, 0]), 0) is None


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=2, max_size=8))
def test_bounds_are_ordered_and_finite(pairs: list[tuple[int, int]]) -> None:
    baseline, other = np.array(pairs).T
    interval = reduction_interval(baseline, other, 0)
    if interval is None:
        assert baseline.sum() == 0
    else:
        assert np.isfinite(interval).all()
        assert interval[0] <= interval[1]
