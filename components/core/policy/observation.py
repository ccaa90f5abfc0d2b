"""What a network in training sees of a decision, and what it makes of it.

An observation is one float32 tensor: quantiles and magnitudes [2 * F] of the features, in the policy's order. For a
problem with a mask it is [A, 2 * F + 1], a row for each of the A actions: quantiles, ranks (`feature_encoding.py`), and
at its end 1 where the action is allowed and 0 where it is not.

The logits of such observations are those of `DensePolicy.logits`, but EXCLUDED in place of -inf: the probability is 0
all the same, and 0 * log 0, of which entropies and divergences are made, is 0 and not NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from components.core.formats.features import FeatureSpec
from components.core.policy.dense import DensePolicy
from components.core.policy.feature_encoding import Float32, elements, layer_inputs
from components.core.problems import Problem

EXCLUDED = -1e9
"""The logit of an action that the mask excludes: e to its power is 0."""


def network_features(problem: Problem, features: Sequence[FeatureSpec]) -> tuple[FeatureSpec, ...]:
    """The features that have quantiles: all but the mask."""
    return tuple(feature for feature in features if feature.name != problem.mask)


def observation_shape(problem: Problem, features: Sequence[FeatureSpec]) -> tuple[int, ...]:
    """(2 * F,) or (A, 2 * F + 1) for a policy over `features`."""
    seen = len(network_features(problem, features))
    return (2 * seen,) if problem.mask is None else (problem.num_actions, 2 * seen + 1)


def observations(
    problem: Problem,
    features: Sequence[FeatureSpec],
    buckets: Mapping[str, NDArray[np.float64]],
    columns: Mapping[str, NDArray[np.generic]],
) -> Float32:
    """float32 [N, *observation_shape] of N decisions.

    Args:
        features: of the policy, the mask among them. buckets: their boundaries.
        columns: feature name -> values, [N] or [N, *shape]; other columns are ignored.

    Raises:
        UserError: a column is missing.
    """
    mask = next((feature for feature in features if feature.name == problem.mask), None)
    inputs = layer_inputs(network_features(problem, features), buckets, columns, mask)
    if mask is None:
        return inputs
    allowed = np.asarray(columns[mask.name]).reshape(len(inputs), elements(mask), 1) != 0
    return np.concatenate([inputs, allowed], axis=-1, dtype=np.float32)


def logits(policy: DensePolicy, observed: Float32) -> Float32:
    """float32 [N, A] from observations [N, ...] of the policy's features."""
    if policy.mask is None:
        return policy.logits_of_inputs(observed)
    return np.where(observed[..., -1] != 0, policy.logits_of_inputs(observed[..., :-1]), np.float32(EXCLUDED))


def finite(logged: NDArray[np.generic]) -> Float32:
    """Logits as a compiler logs them, EXCLUDED in place of -inf."""
    return np.maximum(np.asarray(logged, np.float32), np.float32(EXCLUDED))
