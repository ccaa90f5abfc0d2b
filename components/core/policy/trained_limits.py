"""What a policy was trained on: the largest values of its features, beyond which it decides like LLVM's heuristic, and
the ranges of all features, outside of which the compiler asks that heuristic (option -mlgo-ranges).

A network extrapolates at random, and in code of the same kind a wrong decision is wrong hundreds of times: one policy
inlined an assertion that was called 860 times and made its module 12% larger, another one of the same training data did
not (docs/performance.md, "Beyond the trained range the heuristic decides").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from components.core.formats.features import FeatureSpec
from components.core.policy.feature_encoding import Float32, num_elements
from components.core.problems import Problem

MAX_RANK = 4
MODULES_PER_RANK = 50
"""A value counts as trained on if MAX_RANK modules reach it, or one per MODULES_PER_RANK modules in a small corpus."""


def trained_limits(
    problem: Problem,
    features: Sequence[FeatureSpec],
    columns: Mapping[str, NDArray[np.generic]],
    modules: NDArray[np.int64],
) -> dict[str, int]:
    """Return the largest value of each integer feature of one element that several modules reach.

    Args:
        columns: feature name -> values [N] or [N, 1] of the training decisions.
        modules: [N], the index of each decision's module.

    Returns:
        An empty dict for problems whose features do not tell the heuristic's decision.
    """
    heuristic = problem.policy.heuristic
    if heuristic is None or not {*heuristic} <= {feature.name for feature in features}:
        return {}
    limits = {}
    rank = min(MAX_RANK, 1 + len(np.unique(modules)) // MODULES_PER_RANK)
    for feature in features:
        if can_be_limited(feature) and feature.name not in problem.policy.settings:
            largest = np.full(int(modules.max()) + 1, np.iinfo(np.int64).min)
            np.maximum.at(largest, modules, np.asarray(columns[feature.name]).reshape(-1))
            limits[feature.name] = int(np.sort(largest)[-rank])
    return limits


def trained_ranges(
    problem: Problem, features: Sequence[FeatureSpec], columns: Mapping[str, NDArray[np.generic]]
) -> dict[str, tuple[int, int]]:
    """Return the smallest and the largest value of each integer feature of one element that no option sets.

    Args:
        columns: feature name -> values [N] or [N, 1] of the training decisions.

    Returns:
        An empty dict for problems in which the compiler does not ask the heuristic.
    """
    if problem.policy.heuristic is None:
        return {}
    return {
        feature.name: (int(columns[feature.name].min()), int(columns[feature.name].max()))
        for feature in features
        if can_be_limited(feature) and feature.name not in problem.policy.settings and len(columns[feature.name])
    }


def can_be_limited(feature: FeatureSpec) -> bool:
    """Return whether policies can have a limit of this feature."""
    return feature.dtype == "int64" and num_elements(feature) == 1


def beyond_limits(limits: Mapping[str, int], columns: Mapping[str, NDArray[np.generic]]) -> NDArray[np.bool_]:
    """Return bool [N]: whether any feature of a decision is larger than its limit. `limits` has at least one."""
    beyond = [np.asarray(columns[name], np.int64).reshape(-1) > limit for name, limit in limits.items()]
    return np.asarray(np.logical_or.reduce(beyond))


def heuristic_logits(problem: Problem, columns: Mapping[str, NDArray[np.generic]]) -> Float32:
    """Return float32 [N, 2], 1 for the action that LLVM's heuristic takes and -1 for the other one."""
    assert problem.policy.heuristic is not None
    first, second = (np.asarray(columns[name], np.int64).reshape(-1) for name in problem.policy.heuristic)
    sign = np.where(first < second, np.float32(1), np.float32(-1))
    return np.stack([-sign, sign], axis=-1)
