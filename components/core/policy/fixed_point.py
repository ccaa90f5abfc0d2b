"""Weights as 16-bit multiples of a power of two: half the bytes of a policy that a compiler embeds.

An exported policy has such weights only, so that its forms agree to the last bit of what they multiply. A layer has one
power of two, the least with which its greatest weight fits, so that what a weight loses is at most 1/32767 of that:
of 586,000 decisions 0.09% change, whose logits differed by 0.007 at most. (bfloat16 would change eight times as many.)
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from components.core.policy.dense import DensePolicy
from components.core.policy.feature_encoding import Float32

_GREATEST = np.iinfo(np.int16).max


def round_weights(policy: DensePolicy) -> DensePolicy:
    """Return the policy with each layer's weights rounded to 16-bit multiples; of one that has such weights, the same.

    Biases stay as they are. With a mask so does the first layer, whose sums the emitted form rewrites.
    """
    first_kept = 1 if policy.mask is not None else 0
    rounded = tuple((rounded_layer(weights), bias) for weights, bias in policy.layers[first_kept:])
    return dataclasses.replace(policy, layers=policy.layers[:first_kept] + rounded)


def multiples(weights: Float32) -> tuple[NDArray[np.int16], np.float32] | None:
    """Return what int16 numbers and what power of two, multiplied, are exactly these weights; None if none are."""
    scale = _scale(weights)
    numbers = weights / scale
    if not np.array_equal(numbers, np.rint(numbers)):
        return None
    return numbers.astype(np.int16), scale


def rounded_layer(weights: Float32) -> Float32:
    """Return the nearest weights that are 16-bit multiples of one power of two."""
    scale = _scale(weights)
    return np.rint(weights / scale) * scale


def _scale(weights: Float32) -> np.float32:
    """The least power of two of which the greatest weight is at most 32767 multiples."""
    greatest = np.abs(weights).max(initial=0.0)
    if greatest == 0.0:
        return np.float32(1.0)
    # No subnormal number: libraries that flush them to zero are loaded beside us.
    exponent = max(int(np.ceil(np.log2(np.float64(greatest) / _GREATEST))), -126)
    return np.float32(2.0**exponent)
