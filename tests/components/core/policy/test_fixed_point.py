"""Weights rounded to 16-bit multiples of a power of two."""

import hypothesis.extra.numpy as npst
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from components.core.policy.fixed_point import round_to_fixed_point, round_weights, to_fixed_point
from components.core.policy.generated.codegen import generate
from components.core.policy.generated.native_policy import NativePolicy
from components.core.policy.generated.shared_object import build_shared_object

floats = st.floats(-(2.0**100), 2.0**100, width=32, allow_subnormal=False) | st.floats(
    -1, 1, width=32, allow_subnormal=False
)
weights = npst.arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 5)), elements=floats)


@given(weights)
def test_rounding_fits_16_bits_is_close_and_idempotent(layer):
    rounded = round_to_fixed_point(layer)
    greatest = np.abs(layer).max()
    assert np.abs(rounded - layer).max() <= max(greatest / 32767 * 1.0001, 2.0**-127)
    np.testing.assert_array_equal(round_to_fixed_point(rounded), rounded)
    numbers, scale = to_fixed_point(rounded)
    np.testing.assert_array_equal(numbers.astype(np.float32) * scale, rounded)


def test_weights_of_more_bits_have_no_fixed_point_form():
    assert to_fixed_point(np.array([[1.0, 1 / 3]], np.float32)) is None


def test_a_native_policy_of_rounded_weights_gives_their_logits_and_saves_two_bytes_each(make_policy, clang, tmp_path):
    policy, columns = make_policy(0, (64, 64, 32))
    sizes = []
    for variant in (policy, round_weights(policy)):
        directory = tmp_path / str(len(sizes))
        directory.mkdir()
        generate(variant, directory)
        sizes.append(build_shared_object(directory, clang).stat().st_size)
        np.testing.assert_allclose(NativePolicy(directory).logits(columns), variant.logits(columns), atol=2e-5)
    count = sum(weights.size for weights, _ in policy.layers)
    assert sizes[0] - sizes[1] > 2 * count * 0.9
