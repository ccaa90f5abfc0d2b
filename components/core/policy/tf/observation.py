"""Observations of decisions for networks in training, and the logits of these.

An observation is one float32 tensor: quantiles and magnitudes [2 * F] of the features, in the policy's order, and the
magnitudes of all elements of tensors [E]. For a problem with a mask it is [A, 2 * F + 1], a row for each of the A
actions: quantiles, action ranks (`feature_encoding.py`), and in the last column 1 if the action is allowed, else 0.

The logits of observations are those of `DensePolicy.logits`, with EXCLUDED in place of -inf: the probability is also 0,
and 0 * log 0, a term of entropies and divergences, is 0 and not NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from components.core.formats.features import FeatureSpec
from components.core.policy.dense import DensePolicy
from components.core.policy.feature_encoding import (
    Float32,
    layer_inputs,
    num_elements,
    num_layer_inputs,
    tensor_features,
)
from components.core.problems import Problem

EXCLUDED = -1e9
"""Logit of an action that the mask excludes: its exponential is 0."""


def network_features(problem: Problem, features: Sequence[FeatureSpec]) -> tuple[FeatureSpec, ...]:
    """Return the features that have quantiles: all but the mask, and without a mask all but tensors."""
    mask = problem.policy.mask
    tensors = tensor_features(features, mask is not None)
    return tuple(feature for feature in features if feature.name != mask and feature not in tensors)


def vocab_features(problem: Problem, features: Sequence[FeatureSpec]) -> tuple[FeatureSpec, ...]:
    """Return the features of a trace that a vocab needs: those with quantiles that a policy may use."""
    left_out = problem.policy.excluded_features | problem.policy.per_instruction_features
    return tuple(feature for feature in network_features(problem, features) if feature.name not in left_out)


def observation_shape(problem: Problem, features: Sequence[FeatureSpec]) -> tuple[int, ...]:
    """Return (2 * F + E,) or (A, 2 * F + 1) for a policy over `features`."""
    scalars = network_features(problem, features)
    if problem.policy.mask is not None:
        return problem.policy.num_actions, 2 * len(scalars) + 1
    return (num_layer_inputs(scalars, tensor_features(features, masked=False), masked=False),)


def observations(
    problem: Problem,
    features: Sequence[FeatureSpec],
    buckets: Mapping[str, NDArray[np.float64]],
    columns: Mapping[str, NDArray[np.generic]],
) -> Float32:
    """Return float32 [N, *observation_shape] of N decisions. UserError if a column is missing.

    Args:
        features: all features of the policy, including the mask. buckets: their boundaries.
        columns: feature name -> values, [N] or [N, *shape]; other columns are ignored.
    """
    mask = next((feature for feature in features if feature.name == problem.policy.mask), None)
    tensors = tensor_features(features, mask is not None)
    inputs = layer_inputs(network_features(problem, features), buckets, columns, mask, tensors)
    if mask is None:
        return inputs
    allowed = np.asarray(columns[mask.name]).reshape(len(inputs), num_elements(mask), 1) != 0
    return np.concatenate([inputs, allowed], axis=-1, dtype=np.float32)


def logits(policy: DensePolicy, observed: Float32) -> Float32:
    """Return float32 [N, A] from observations [N, ...] of the policy's features."""
    if policy.mask is None:
        return policy.logits_of_inputs(observed)
    return np.where(observed[..., -1] != 0, policy.logits_of_inputs(observed[..., :-1]), np.float32(EXCLUDED))


def finite_logits(logged: NDArray[np.generic]) -> Float32:
    """Return logits that a compiler logged, with EXCLUDED in place of -inf."""
    return np.maximum(np.asarray(logged, np.float32), np.float32(EXCLUDED))
