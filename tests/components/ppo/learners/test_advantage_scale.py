"""Advantages in units of a common scale."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from components.ppo.training_state import normalize_advantages


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50), st.floats(0.1, 1e3))
def test_normalize_advantages_keeps_sign_and_order_and_is_bounded(values, scale):
    normalized = normalize_advantages(np.array(values), scale)
    assert normalized.dtype == np.float32
    assert np.all(np.abs(normalized) <= 4)
    order = np.argsort(values, kind="stable")
    assert np.all(np.diff(normalized[order]) >= 0)
    assert np.all(normalized * np.array(values) >= 0)
