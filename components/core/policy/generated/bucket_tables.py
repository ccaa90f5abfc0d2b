"""The tables of a generated policy: distinct boundaries, and a first layer rewritten for speed.

Three facts make a policy small and fast:

- Features are integers, boundaries are quantiles with many repetitions: the distinct ones, rounded up, in the smallest
  integer type that holds them, with the number of boundaries up to each (its rank), give the same quantile.
- Most features have one usual value most of the time. The biases include its contribution, and a decision with another
  value adds the difference.
- A feature with few distinct boundaries has few possible contributions: with a mask a row of sums per bucket replaces
  the rows for q, sqrt(q) and q*q.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from components.core.formats.features import FeatureSpec
from components.core.policy.dense import DensePolicy, Layer
from components.core.policy.feature_encoding import Float32, inputs_per_feature, inputs_per_quantile, magnitudes

STORAGE_TYPES = {"int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t", "float32": "float"}


@dataclass(frozen=True)
class FeatureTable:
    """The table that maps one feature to inputs of the first layer.

    Invariants: `boundaries` are strictly increasing, at least one, of dtype `storage`; ranks[i] is the number of the
    vocab's boundaries that are <= boundaries[i]. A value is in bucket b if b of `boundaries` are <= it, so there
    are len(boundaries) + 1 buckets. `rows` is float32 [len(boundaries), outputs] if `row_per_bucket` (all buckets but
    the usual one, in order, relative to it) and [inputs_per_quantile, outputs] otherwise.
    """

    spec: FeatureSpec
    storage: str
    boundaries: NDArray[np.generic]
    ranks: NDArray[np.uint16]
    rank_scale: float
    usual_bucket: int
    row_per_bucket: bool
    rows: Float32
    usual_magnitude: np.float32

    @property
    def usual_q(self) -> np.float32:
        """Quantile of the most common value."""
        rank = 0 if self.usual_bucket == 0 else int(self.ranks[self.usual_bucket - 1])
        return np.float32(rank) / np.float32(self.rank_scale)


def distinct_boundaries(
    spec: FeatureSpec, boundaries: NDArray[np.float64]
) -> tuple[NDArray[np.generic], NDArray[np.uint16]]:
    """Return strictly increasing boundaries of the smallest type, and the rank of each.

    For an integer x, b <= x is the same as ceil(b) <= x; for a float32 x, the same as (b rounded up to float32) <= x.
    Boundaries beyond int64 are clipped to its range: no value of the feature is above that either.
    """
    if spec.dtype == "float32":
        rounded = boundaries.astype(np.float32)
        ceiled: NDArray[np.generic] = np.where(rounded < boundaries, np.nextafter(rounded, np.float32(np.inf)), rounded)
        ceiled = ceiled.astype(np.float32)
    else:
        # The largest float64 below 2**63: 2**63 itself would not fit.
        ceiled = np.clip(np.ceil(boundaries), -(2.0**63), np.nextafter(2.0**63, 0)).astype(np.int64)
    distinct, counts = np.unique(ceiled, return_counts=True)
    return distinct.astype(_smallest_type(distinct)), np.cumsum(counts).astype(np.uint16)


def feature_tables(policy: DensePolicy) -> tuple[tuple[FeatureTable, ...], Layer]:
    """Return the tables of `network_features`, and the first layer as ([rows of all tables in order, outputs], biases).

    The next rows are for each feature's magnitude, or with a mask its action rank, in order; the last ones for the
    magnitudes of the elements of tensors.

    Weights are summed in float64 and rounded once, so the sums agree with the layer they replace to about 1e-7.
    """
    weights, bias = policy.layers[0]
    count, masked = len(policy.network_features), policy.mask is not None
    per_quantile = inputs_per_quantile(masked)
    scalar_rows = inputs_per_feature(masked) * count
    per_feature = weights[:scalar_rows].astype(np.float64).reshape(-1, count, weights.shape[1]).swapaxes(0, 1)
    new_bias = bias.astype(np.float64)
    tables = []
    for spec, all_weights in zip(policy.network_features, per_feature, strict=True):
        quantile_weights, other_weights = all_weights[:per_quantile], all_weights[per_quantile]
        vocab = policy.buckets[spec.name]
        boundaries, ranks = distinct_boundaries(spec, vocab)
        # The repetitions of a boundary are the frequency of that value in the trace, in thousandths.
        usual_bucket = 1 + int(np.argmax(np.diff(ranks, prepend=np.uint16(0))))
        q = np.concatenate([[0], ranks]).astype(np.float32) / np.float32(len(vocab))
        expanded = np.stack([q, np.sqrt(q), q * q], 1)[:, :per_quantile]
        contributions = expanded.astype(np.float64) @ quantile_weights  # [buckets, outputs]
        new_bias = new_bias + contributions[usual_bucket]
        usual_magnitude = np.float32(0.0)
        if policy.mask is None:
            usual = boundaries[usual_bucket - 1 : usual_bucket]
            usual_magnitude = magnitudes([spec], {spec.name: usual})[0, 0]
            new_bias = new_bias + float(usual_magnitude) * other_weights
        # A quantile of one row cannot get fewer, and its weights stay 16-bit multiples (fixed_point.py).
        row_per_bucket = 1 < per_quantile >= len(boundaries)
        if row_per_bucket:
            rows = np.delete(contributions - contributions[usual_bucket], usual_bucket, axis=0)
        else:
            rows = quantile_weights
        tables.append(
            FeatureTable(
                spec=spec,
                storage=boundaries.dtype.name,
                boundaries=boundaries,
                ranks=ranks,
                rank_scale=float(len(vocab)),
                usual_bucket=usual_bucket,
                row_per_bucket=row_per_bucket,
                rows=rows.astype(np.float32),
                usual_magnitude=usual_magnitude,
            )
        )
    last_rows = per_feature[:, per_quantile].astype(np.float32)
    all_rows = np.concatenate([*(table.rows for table in tables), last_rows, weights[scalar_rows:]])
    return tuple(tables), (all_rows, new_bias.astype(np.float32))


def _smallest_type(values: NDArray[np.generic]) -> np.dtype[np.generic]:
    if values.dtype == np.float32:
        return values.dtype
    for name in ("int8", "int16", "int32"):
        limits = np.iinfo(name)
        if limits.min <= values[0] and values[-1] <= limits.max:
            return np.dtype(name)
    return np.dtype("int64")
