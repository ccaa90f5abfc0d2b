"""What the layers of a policy are given of a decision.

A feature value x becomes its quantile q in the trace of the default heuristic (the share of the vocab's boundaries that
are <= x, in [0, 1]; 1 if x is not a number, which is how LLVM normalizes an infinite weight). The network sees q,
sqrt(q) and q*q, as ml-compiler-opt's does, so that the scale of a feature (a count of 2, a cost of -15000) is of no
consequence.

Of a problem with a mask features describe one action each, by position, and what counts is how they compare with each
other: the heuristic evicts the range of least weight, by whatever little it is less. So a value also has its standing
s, the share of the allowed actions whose value is less. Quantiles alone tell 1000 values apart, and a network of them
agrees with the heuristic in 90.5% of held-out decisions; with standings in 95.9% (docs/performance.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.console import UserError
from components.formats.features import FeatureSpec

Float32 = NDArray[np.float32]

EXPANSION = 3
"""Inputs of the first layer that a quantile makes: q, sqrt(q), q*q."""
_ROWS_AT_ONCE = 4096


def inputs_per_feature(masked: bool) -> int:
    """Rows of the first layer's weights for each feature."""
    return EXPANSION + masked


def elements(feature: FeatureSpec) -> int:
    """How many numbers one value of the feature is."""
    return math.prod(feature.shape)


def layer_inputs(
    features: Sequence[FeatureSpec],
    buckets: Mapping[str, NDArray[np.float64]],
    columns: Mapping[str, NDArray[np.generic]],
    mask: FeatureSpec | None,
) -> Float32:
    """Quantiles float32 [N, F], or with a mask quantiles and then standings, [N, num_actions, 2 * F].

    Args:
        features: F of them, the mask not among them. buckets: their boundaries.
        columns: feature name -> values, [N], [N, 1] or [N, *shape]; other columns are ignored.

    Raises:
        UserError: a column is missing.
    """
    q = quantiles(features, buckets, columns)
    if mask is None:
        return q
    wanted = np.asarray(columns[mask.name]).reshape(len(q), elements(mask)) != 0
    return np.concatenate([np.broadcast_to(q, (*wanted.shape, q.shape[-1])), standings(features, columns, wanted)], -1)


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


def standings(
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


def expand(inputs: Float32, masked: bool = False) -> Float32:
    """What the first layer multiplies, [..., inputs_per_feature * F], from `layer_inputs()`.

    All q, then all sqrt(q), then all q*q, then with a mask all standings.
    """
    features = inputs.shape[-1] // (1 + masked)
    q = inputs[..., :features]
    return np.concatenate([q, np.sqrt(q), q * q, inputs[..., features:]], axis=-1)
