"""Rounded weights: what 16 bits hold, once and for all forms."""

import hypothesis.extra.numpy as npst
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from components.core.policy.codegen import generate
from components.core.policy.fixed_point import multiples, round_weights, rounded_layer
from components.core.policy.native_policy import NativePolicy
from components.core.policy.shared_object import build_shared_object

floats = st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False) | st.floats(
    -1, 1, width=32, allow_subnormal=False
)
weights = npst.arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=floats)


@given(weights)
def test_a_rounded_layer_is_16_bits_wide_close_to_what_it_was_and_stays(layer):
    rounded = rounded_layer(layer)
    greatest = np.abs(layer).max()
    assert np.abs(rounded - layer).max() <= max(greatest / 32767 * 1.0001, 2.0**-127)
    np.testing.assert_array_equal(rounded_layer(rounded), rounded)
    numbers, scale = multiples(rounded)
    np.testing.assert_array_equal(numbers.astype(np.float32) * scale, rounded)


def test_weights_of_more_bits_stay_as_they_are():
    assert multiples(np.array([[1.0, 1 / 3]], np.float32)) is None


def test_an_emitted_policy_of_rounded_weights_gives_their_logits_and_saves_two_bytes_each(make_policy, clang, tmp_path):
    policy, columns = make_policy(0, (64, 64, 32))
    sizes = []
    for kept in (policy, round_weights(policy)):
        directory = tmp_path / str(len(sizes))
        directory.mkdir()
        generate(kept, directory)
        sizes.append(build_shared_object(directory, clang).stat().st_size)
        np.testing.assert_allclose(NativePolicy(directory).logits(columns), kept.logits(columns), atol=2e-5)
    count = sum(weights.size for weights, _ in policy.layers)
    assert sizes[0] - sizes[1] > 2 * count * 0.9
