"""Encodes the features of a decision as inputs of a policy's first layer.

A feature value x becomes its quantile q in the trace of the default heuristic: the share of the vocab's boundaries that
are <= x, in [0, 1]; 1 for NaN, to which LLVM normalizes an infinite weight. This removes the scale of a feature (a
count of 2, a cost of -15000). The second input is the value's magnitude, a logarithm, because quantiles do not
distinguish values that are rare in the trace, such as large functions: a network of quantiles alone finds a third less
of the worth of single decisions. sqrt(q) and q*q, inputs of ml-compiler-opt's networks, add nothing to these two
(docs/performance.md).

If a problem has a mask, features describe one action each, by position, and their order matters: the heuristic evicts
the range of least weight, however small the difference. So the inputs are q, sqrt(q), q*q and, in place of the
magnitude, the action rank: the share of the allowed actions whose value is less. Quantiles alone distinguish 1000
values, and a network of them agrees with the heuristic in 90.5% of held-out decisions; with action ranks in 95.9%
(docs/performance.md).

Without a mask a feature may be a tensor, such as the embedding of a function. Its elements mean nothing by themselves,
so they have no quantiles: each is one input, its magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.core.formats.features import FeatureSpec
from components.platform.errors import UserError

Float32 = NDArray[np.float32]

MAGNITUDE_SCALE = 1 / 16
"""Brings the magnitudes of counts and sizes to the scale of quantiles: 1 + |x| = 2**16 has the magnitude 1."""
_BATCH_ROWS = 4096


def inputs_per_quantile(masked: bool) -> int:
    """Return the number of first-layer inputs per quantile: q, or with a mask q, sqrt(q), q*q."""
    return 3 if masked else 1


def inputs_per_feature(masked: bool) -> int:
    """Return the number of first-layer weight rows per feature: the quantile's, and the magnitude's or rank's."""
    return inputs_per_quantile(masked) + 1


def num_elements(feature: FeatureSpec) -> int:
    """Return the number of elements of one value of the feature."""
    return math.prod(feature.shape)


def tensor_features(features: Sequence[FeatureSpec], masked: bool) -> tuple[FeatureSpec, ...]:
    """Return the features of several elements that do not describe an action each; none if there is a mask."""
    return tuple(feature for feature in features if num_elements(feature) > 1 and not masked)


def num_layer_inputs(scalars: Sequence[FeatureSpec], tensors: Sequence[FeatureSpec], masked: bool) -> int:
    """Return the number of first-layer weight rows of these features, the mask not counted."""
    return inputs_per_feature(masked) * len(scalars) + sum(map(num_elements, tensors))


def layer_inputs(
    features: Sequence[FeatureSpec],
    buckets: Mapping[str, NDArray[np.float64]],
    columns: Mapping[str, NDArray[np.generic]],
    mask: FeatureSpec | None,
    tensors: Sequence[FeatureSpec] = (),
) -> Float32:
    """Return quantiles, then magnitudes: float32 [N, 2 * F + E]; with a mask quantiles, action ranks: [N, A, 2 * F].

    Args:
        features: F features without the mask. buckets: their boundaries.
        tensors: features of E elements in all, whose magnitudes follow; none with a mask.
        columns: feature name -> values, [N], [N, 1] or [N, *shape]; other columns are ignored.

    Raises:
        UserError: a column is missing.
    """
    q = quantiles(features, buckets, columns)
    if mask is None:
        return np.concatenate([q, magnitudes([*features, *tensors], columns)], -1)
    allowed = np.asarray(columns[mask.name]).reshape(len(q), num_elements(mask)) != 0
    return np.concatenate(
        [np.broadcast_to(q, (*allowed.shape, q.shape[-1])), action_ranks(features, columns, allowed)], -1
    )


def quantiles(
    features: Sequence[FeatureSpec],
    buckets: Mapping[str, NDArray[np.float64]],
    columns: Mapping[str, NDArray[np.generic]],
) -> Float32:
    """Return for each value the share of its feature's boundaries that are <= it, in [0, 1].

    Returns:
        float32 [N, F]; if features have C > 1 elements, [N, C, F], in which features of one element are repeated.

    Raises:
        UserError: a column is missing.
    """
    _require(features, columns)
    rows = len(columns[features[0].name]) if features else 0
    max_elements = max(map(num_elements, features), default=1)
    result = np.empty((rows, max_elements, len(features)), np.float32)
    for i, spec in enumerate(features):
        boundaries, values = buckets[spec.name], np.asarray(columns[spec.name]).reshape(rows, num_elements(spec))
        reached = np.searchsorted(boundaries, values, side="right")
        # One correctly rounded float32 division; every other form computes the same bits.
        result[:, :, i] = reached.astype(np.float32) / np.float32(len(boundaries))
    return result if max_elements > 1 else result[:, 0]


def magnitudes(features: Sequence[FeatureSpec], columns: Mapping[str, NDArray[np.generic]]) -> Float32:
    """Return the magnitude of each value of each feature, float32 [N, elements of all features].

    It is sign(x) * L(1 + |x|) * MAGNITUDE_SCALE with L the logarithm to base 2, piecewise linear between powers of two:
    L(y) = e + y / 2**e - 1 with 2**e <= y < 2**(e + 1), the exponent and the fraction of a float. Generated code takes
    it from the bits of the float. NaN has the magnitude 0.
    """
    _require(features, columns)
    parts = [np.asarray(columns[f.name]).reshape(-1, num_elements(f)).astype(np.float64) for f in features]
    values = np.concatenate(parts, axis=1)
    greatest = float(np.finfo(np.float32).max)
    values = np.nan_to_num(values, nan=0.0, posinf=greatest, neginf=-greatest)
    bits = (1.0 + np.abs(values)).astype(np.float32).view(np.int32)
    logarithm = (bits - np.int32(0x3F800000)).astype(np.float32) * np.float32(2.0**-23)
    return (np.sign(values).astype(np.float32) * logarithm * np.float32(MAGNITUDE_SCALE)).astype(np.float32)


def _require(features: Sequence[FeatureSpec], columns: Mapping[str, NDArray[np.generic]]) -> None:
    if missing := [f.name for f in features if f.name not in columns]:
        raise UserError(
            f"the decisions lack the features {', '.join(missing)}",
            "use a trace of the compiler that the policy was trained with",
        )


def invert_magnitudes(magnitude: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the values that have these magnitudes, to the precision of float32."""
    logarithm = np.abs(magnitude.astype(np.float64)) / MAGNITUDE_SCALE
    exponent = np.floor(logarithm)
    values: NDArray[np.float64] = np.sign(magnitude) * ((1 + logarithm - exponent) * 2.0**exponent - 1)
    return values


def action_ranks(
    features: Sequence[FeatureSpec], columns: Mapping[str, NDArray[np.generic]], allowed: NDArray[np.bool_]
) -> Float32:
    """Return for each action the share of allowed actions whose value is less: float32 [N, A, F], 0 for scalars.

    NaN counts as infinite.
    """
    result = np.zeros((*allowed.shape, len(features)), np.float32)
    counts = np.maximum(allowed.sum(axis=1), 1).astype(np.float32)[:, None]
    for i, feature in enumerate(features):
        if num_elements(feature) == 1:
            continue
        values: NDArray[Any] = np.asarray(columns[feature.name]).reshape(allowed.shape)
        if values.dtype.kind == "f":
            values = np.where(np.isnan(values), np.inf, values)
        for first in range(0, len(values), _BATCH_ROWS):
            batch = slice(first, first + _BATCH_ROWS)
            less = (values[batch, None, :] < values[batch, :, None]) & allowed[batch, None, :]
            result[batch, :, i] = less.sum(axis=-1).astype(np.float32) / counts[batch]
    return result


def expand(inputs: Float32, masked: bool) -> Float32:
    """Return the inputs that the first layer multiplies, [..., inputs_per_feature * F], from `layer_inputs()`.

    The order is all q, all magnitudes; with a mask all q, all sqrt(q), all q*q, all action ranks.
    """
    if not masked:
        return inputs
    features = inputs.shape[-1] // 2
    q = inputs[..., :features]
    return np.concatenate([q, np.sqrt(q), q * q, inputs[..., features:]], axis=-1)
