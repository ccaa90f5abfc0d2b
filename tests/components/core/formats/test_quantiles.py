from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from components.core.formats.vocab import quantiles


@settings(deadline=None)
@given(values=hnp.arrays(np.int64, st.integers(1, 2500), elements=st.integers(-50, 50) | st.integers(-(2**50), 2**50)))
def test_quantiles_by_definition(values: np.ndarray) -> None:
    """The k-th is the value of rank ceil(k * (N - 1) / 999) among the sorted values, in integers."""
    ordered = np.sort(values)
    ranks = [math.ceil(Fraction(k * (len(values) - 1), 999)) for k in range(1000)]
    assert quantiles(values).dtype == np.float64
    np.testing.assert_array_equal(quantiles(values), ordered[ranks])


def test_each_element_of_a_tensor_counts() -> None:
    values = np.arange(1000, dtype=np.float32).reshape(250, 2, 2)
    np.testing.assert_array_equal(quantiles(values), np.arange(1000))
