from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from components.core.formats.vocab import quantiles


@settings(deadline=None)
@given(values=hnp.arrays(np.int64, st.integers(1, 3000), elements=st.integers(-(2**50), 2**50)))
def test_quantiles_are_sorted_values_that_occur(values: np.ndarray) -> None:
    boundaries = quantiles(values)
    assert boundaries.shape == (1000,) and boundaries.dtype == np.float64
    assert boundaries[0] == values.min() and boundaries[-1] == values.max()
    assert (np.diff(boundaries) >= 0).all()
    assert np.isin(boundaries, values).all()


@settings(deadline=None)
@given(values=hnp.arrays(np.int64, st.integers(1, 2500), elements=st.integers(-50, 50)))
def test_quantiles_by_definition(values: np.ndarray) -> None:
    """The k-th is the value of rank ceil(k * (N - 1) / 999) among the sorted values, in integers."""
    ordered = np.sort(values)
    ranks = [math.ceil(Fraction(k * (len(values) - 1), 999)) for k in range(1000)]
    np.testing.assert_array_equal(quantiles(values), ordered[ranks])


def test_thousand_distinct_values_are_their_quantiles() -> None:
    values = np.random.default_rng(0).permutation(1000) * 7
    np.testing.assert_array_equal(quantiles(values), np.arange(1000) * 7)


def test_each_element_of_a_tensor_counts() -> None:
    values = np.arange(1000, dtype=np.float32).reshape(250, 2, 2)
    np.testing.assert_array_equal(quantiles(values), np.arange(1000))
