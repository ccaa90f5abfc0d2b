"""Policies fitted to compilers that lack some of their optional features."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from components.core.formats.policy import PolicyInfo
from components.core.policy.optional_features import fit_to_compiler, fix_features
from components.platform.errors import UserError


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("hidden", [(), (16, 8)])
def test_fixed_features_become_constants(make_policy, hidden, tensors) -> None:
    policy, columns = make_policy(3, hidden, tensors=tensors)
    values = {"count": 9.0, "weight": -0.75}
    assumed = columns | {name: np.full_like(columns[name], value) for name, value in values.items()}
    fixed = fix_features(policy, values)
    assert {spec.name for spec in fixed.features} == set(columns) - set(values)
    assert {spec.name for spec in fixed.network_features} == set(fixed.buckets)
    np.testing.assert_allclose(fixed.logits(columns), policy.logits(assumed), atol=1e-4)


def test_only_features_that_the_compiler_lacks_are_removed(make_policy) -> None:
    policy, columns = make_policy(3)
    info = PolicyInfo("inlining", policy.features, 2, "ppo", optional_features={"count": 9.0, "cost": 100.0})
    assert fit_to_compiler(policy, info, policy.features) == (policy, info)
    available = [spec for spec in policy.features if spec.name != "cost"]
    fitted, described = fit_to_compiler(policy, info, available)
    assert fitted.features == described.features == tuple(available)
    assert described.optional_features == {"count": 9.0}
    expected = policy.logits(columns | {"cost": np.full_like(columns["cost"], 100)})
    np.testing.assert_allclose(fitted.logits(columns), expected, atol=1e-4)
    with pytest.raises(UserError, match="log: cost"):
        fit_to_compiler(policy, dataclasses.replace(info, optional_features={"count": 9.0}), available)
