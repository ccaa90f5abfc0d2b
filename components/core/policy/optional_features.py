"""Fits a policy to a compiler that lacks some of its optional features."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from components.core.formats.features import FeatureSpec
from components.core.formats.policy import PolicyInfo, check_features
from components.core.policy.dense import DensePolicy
from components.core.policy.feature_encoding import expand, inputs_per_feature
from components.platform.console import say


def fit_to_compiler(
    policy: DensePolicy, info: PolicyInfo, compiler_features: Sequence[FeatureSpec]
) -> tuple[DensePolicy, PolicyInfo]:
    """Return the policy and its description without the optional features that the compiler does not have.

    Raises:
        UserError: the compiler lacks other features of the policy.
    """
    check_features(policy.features, compiler_features, info.optional_features)
    available = {spec.name for spec in compiler_features}
    values = {name: value for name, value in info.optional_features.items() if name not in available}
    if not values:
        return policy, info
    say(f"this compiler lacks {', '.join(values)}: the policy assumes {', '.join(f'{v:g}' for v in values.values())}")
    policy = fix_features(policy, values)
    optional = {name: value for name, value in info.optional_features.items() if name in available}
    return policy, dataclasses.replace(info, features=policy.features, optional_features=optional)


def fix_features(policy: DensePolicy, values: Mapping[str, float]) -> DensePolicy:
    """Return a policy with the same logits as `policy` has where scalar features have these values, without them.

    Constant inputs of the first layer become part of its bias. Sums are rounded in another order, so that logits may
    differ in the last bits.
    """
    features, masked = policy.network_features, policy.mask is not None
    columns = {spec.name: np.full((1, *spec.shape), values.get(spec.name, 0), spec.dtype) for spec in policy.features}
    inputs = expand(policy.inputs(columns), masked).reshape(-1, policy.layers[0][0].shape[0])[0]
    # All inputs of one kind follow each other, in the order of the features; then those of tensors, which remain.
    fixed = np.array([spec.name in values for spec in features])
    rows = np.zeros(len(inputs), bool)
    rows[: inputs_per_feature(masked) * len(features)] = np.tile(fixed, inputs_per_feature(masked))
    (weights, bias), *others = policy.layers
    first = (weights[~rows], (bias + inputs[rows] @ weights[rows]).astype(np.float32))
    return dataclasses.replace(
        policy,
        features=tuple(spec for spec in policy.features if spec.name not in values),
        buckets={name: boundaries for name, boundaries in policy.buckets.items() if name not in values},
        layers=(first, *others),
        limits={name: limit for name, limit in policy.limits.items() if name not in values},
    )
