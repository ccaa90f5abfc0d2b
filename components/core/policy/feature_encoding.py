"""What the layers of a policy are given of a decision.

A feature value x becomes its quantile q in the trace of the default heuristic (the share of the vocab's boundaries that
are <= x, in [0, 1]; 1 if x is not a number, which is how LLVM normalizes an infinite weight), so that the scale of a
feature (a count of 2, a cost of -15000) is of no consequence. The network also sees the value's magnitude, a logarithm:
quantiles do not tell apart what the trace has seldom, such as large functions, and a network of quantiles alone finds a
third less of what single decisions are worth. sqrt(q) and q*q, which ml-compiler-opt's networks see, add nothing to
the two (docs/performance.md).

Of a problem with a mask features describe one action each, by position, and what counts is how they compare with each
other: the heuristic evicts the range of least weight, by whatever little it is less. So in place of the magnitude a
value has its standing s, the share of the allowed actions whose value is less, and sqrt(q) and q*q next to q.
Quantiles alone tell 1000 values apart, and a network of them agrees with the heuristic in 90.5% of held-out decisions;
with action_ranks in 95.9% (docs/performance.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.core.console import UserError
from components.core.formats.features import FeatureSpec

Float32 = NDArray[np.float32]

MAGNITUDE_SCALE = 1 / 16
"""Brings the magnitudes of counts and sizes to the scale of quantiles: 1 + |x| = 2**16 has the magnitude 1."""
_ROWS_AT_ONCE = 4096


def inputs_per_quantile(masked: bool) -> int:
    """Inputs of the first layer that a quantile makes: q, or with a mask q, sqrt(q), q*q."""
    return 3 if masked else 1


def inputs_per_feature(masked: bool) -> int:
    """Rows of the first layer's weights for each feature: the quantile's, and the magnitude's or the standing's."""
    return inputs_per_quantile(masked) + 1


def elements(feature: FeatureSpec) -> int:
    """How many numbers one value of the feature is."""
    return math.prod(feature.shape)


def layer_inputs(
    features: Sequence[FeatureSpec],
    buckets: Mapping[str, NDArray[np.float64]],
    columns: Mapping[str, NDArray[np.generic]],
    mask: FeatureSpec | None,
) -> Float32:
    """Return quantiles, then magnitudes: float32 [N, 2 * F]; with a mask quantiles, then ranks: [N, A, 2 * F].

    Args:
        features: F of them, the mask not among them. buckets: their boundaries.
        columns: feature name -> values, [N], [N, 1] or [N, *shape]; other columns are ignored.

    Raises:
        UserError: a column is missing.
    """
    q = quantiles(features, buckets, columns)
    if mask is None:
        return np.concatenate([q, magnitudes(features, columns)], -1)
    wanted = np.asarray(columns[mask.name]).reshape(len(q), elements(mask)) != 0
    return np.concatenate(
        [np.broadcast_to(q, (*wanted.shape, q.shape[-1])), action_ranks(features, columns, wanted)], -1
    )


def quantiles(
    features: Sequence[FeatureSpec],
    buckets: Mapping[str, NDArray[np.float64]],
    columns: Mapping[str, NDArray[np.generic]],
) -> Float32:
    """For each value the share of its feature's boundaries that are <= it, in [0, 1].

    Returns:
        float32 [N, F]; if features have C > 1 elements [N, C, F], in which those of one element are repeated.

    Raises:
        UserError: a column is missing.
    """
    missing = [f.name for f in features if f.name not in columns]
    if missing:
        raise UserError(
            f"the decisions lack the features {', '.join(missing)}",
            "use a trace that was logged by the same compiler as the policy's",
        )
    rows = len(columns[features[0].name]) if features else 0
    most = max(map(elements, features), default=1)
    result = np.empty((rows, most, len(features)), np.float32)
    for i, feature in enumerate(features):
        boundaries, values = buckets[feature.name], np.asarray(columns[feature.name]).reshape(rows, elements(feature))
        below = np.searchsorted(boundaries, values, side="right")
        # One correctly rounded float32 division, which every other form repeats bit by bit.
        result[:, :, i] = below.astype(np.float32) / np.float32(len(boundaries))
    return result if most > 1 else result[:, 0]


def magnitudes(features: Sequence[FeatureSpec], columns: Mapping[str, NDArray[np.generic]]) -> Float32:
    """Return the magnitude of each value of scalar features, float32 [N, F].

    It is sign(x) * L(1 + |x|) * MAGNITUDE_SCALE with L the logarithm to base 2, piecewise linear between powers of two:
    L(y) = e + y / 2**e - 1 with 2**e <= y < 2**(e + 1), the exponent and the fraction of a float. Emitted code reads it
    off the bits. What is not a number has the magnitude 0.
    """
    values = np.stack([np.asarray(columns[f.name]).reshape(-1).astype(np.float64) for f in features], 1)
    greatest = float(np.finfo(np.float32).max)
    values = np.nan_to_num(values, nan=0.0, posinf=greatest, neginf=-greatest)
    bits = (1.0 + np.abs(values)).astype(np.float32).view(np.int32)
    logarithm = (bits - np.int32(0x3F800000)).astype(np.float32) * np.float32(2.0**-23)
    return (np.sign(values).astype(np.float32) * logarithm * np.float32(MAGNITUDE_SCALE)).astype(np.float32)


def unscaled(magnitude: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the values that have these magnitudes, as exactly as a float32 has them."""
    logarithm = np.abs(magnitude.astype(np.float64)) / MAGNITUDE_SCALE
    exponent = np.floor(logarithm)
    return np.sign(magnitude) * ((1 + logarithm - exponent) * 2.0**exponent - 1)


def action_ranks(
    features: Sequence[FeatureSpec], columns: Mapping[str, NDArray[np.generic]], allowed: NDArray[np.bool_]
) -> Float32:
    """For each action the share of the allowed ones whose value is less: float32 [N, A, F], 0 for scalars.

    What is not a number counts as infinite.
    """
    result = np.zeros((*allowed.shape, len(features)), np.float32)
    counts = np.maximum(allowed.sum(axis=1), 1).astype(np.float32)[:, None]
    for i, feature in enumerate(features):
        if elements(feature) == 1:
            continue
        values: NDArray[Any] = np.asarray(columns[feature.name]).reshape(allowed.shape)
        if values.dtype.kind == "f":
            values = np.where(np.isnan(values), np.inf, values)
        for first in range(0, len(values), _ROWS_AT_ONCE):
            some = slice(first, first + _ROWS_AT_ONCE)
            less = (values[some, None, :] < values[some, :, None]) & allowed[some, None, :]
            result[some, :, i] = less.sum(axis=-1).astype(np.float32) / counts[some]
    return result


def expand(inputs: Float32, masked: bool) -> Float32:
    """What the first layer multiplies, [..., inputs_per_feature * F], from `layer_inputs()`.

    All q and then all magnitudes; with a mask all q, then all sqrt(q), then all q*q, then all action_ranks.
    """
    if not masked:
        return inputs
    features = inputs.shape[-1] // 2
    q = inputs[..., :features]
    return np.concatenate([q, np.sqrt(q), q * q, inputs[..., features:]], axis=-1)
