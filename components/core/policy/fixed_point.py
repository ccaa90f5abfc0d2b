"""Weights as 16-bit multiples of a power of two, which halve the bytes of a policy that a compiler embeds.

All weights of an exported policy are rounded so, and all its forms multiply by the same numbers. Each layer has one
power of two, the least with which its greatest weight fits, so rounding changes a weight by at most 1/32767 of that.
0.09% of 586,000 decisions change, whose logits differed by 0.007 at most. (bfloat16 would change eight times as many.)
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from components.core.policy.dense import DensePolicy
from components.core.policy.feature_encoding import Float32

_MAX_MULTIPLE = np.iinfo(np.int16).max


def round_weights(policy: DensePolicy) -> DensePolicy:
    """Return the policy with each layer's weights rounded to 16-bit multiples. Rounding twice changes nothing more.

    Biases are not rounded; with a mask neither is the first layer, whose sums the generated C++ rewrites.
    """
    num_unrounded = 1 if policy.mask is not None else 0
    rounded = tuple((round_to_fixed_point(weights), bias) for weights, bias in policy.layers[num_unrounded:])
    return dataclasses.replace(policy, layers=policy.layers[:num_unrounded] + rounded)


def to_fixed_point(weights: Float32) -> tuple[NDArray[np.int16], np.float32] | None:
    """Return int16 numbers and the power of two whose products are exactly these weights; None if there are none."""
    scale = _scale(weights)
    numbers = weights / scale
    return (numbers.astype(np.int16), scale) if np.array_equal(numbers, np.rint(numbers)) else None


def round_to_fixed_point(weights: Float32) -> Float32:
    """Return the nearest weights that are 16-bit multiples of one power of two."""
    scale = _scale(weights)
    rounded: Float32 = np.rint(weights / scale) * scale
    return rounded


def _scale(weights: Float32) -> np.float32:
    """Return the least power of two p for which the greatest weight is at most 32767 * p."""
    greatest = np.abs(weights).max(initial=0.0)
    if greatest == 0.0:
        return np.float32(1.0)
    # Not subnormal: this process loads libraries that flush subnormal numbers to zero.
    exponent = max(int(np.ceil(np.log2(np.float64(greatest) / _MAX_MULTIPLE))), -126)
    return np.float32(2.0**exponent)
