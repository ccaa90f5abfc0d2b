"""Random policies over features of every type, and decisions to test them on."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
import pytest

from components.core.formats.features import FeatureSpec
from components.core.policy.dense import DensePolicy

MakePolicy = Callable[..., tuple[DensePolicy, dict[str, np.ndarray]]]


@pytest.fixture(scope="session")
def make_policy() -> MakePolicy:
    """Return a function from a seed, hidden layers' units and number of decisions to (policy, columns of decisions).

    Features are constant, boolean, small, large, 64-bit and float; on request two more are tensors. Boundaries are
    quantiles of the decisions, so that some values equal a boundary; other decisions have values outside all
    boundaries.
    """

    def make(
        seed: int = 0,
        hidden: tuple[int, ...] = (64, 64, 32),
        decisions: int = 500,
        actions: int = 2,
        tensors: bool = False,
    ) -> tuple[DensePolicy, dict[str, np.ndarray]]:
        rng = np.random.default_rng(seed)
        columns: dict[str, np.ndarray] = {
            "constant": np.full(decisions, 7),
            "flag": rng.integers(0, 2, decisions),
            "rare": (rng.random(decisions) < 0.02).astype(np.int64) * 3,
            "count": rng.exponential(5, decisions).astype(np.int64),
            "cost": rng.normal(0, 3000, decisions).astype(np.int64),
            "size": rng.integers(0, 1 << 22, decisions),
            "wide": rng.integers(-(1 << 50), 1 << 50, decisions),
            "weight": rng.normal(0, 1, decisions).astype(np.float32),
        }
        specs = tuple(FeatureSpec(name, values.dtype.name) for name, values in columns.items())
        embeddings: dict[str, np.ndarray] = {}
        if tensors:
            embeddings["embedding"] = rng.normal(0, 20, (decisions, 5)).astype(np.float32)
            embeddings["counts"] = rng.integers(-3, 1000, (decisions, 3))
        buckets = {name: np.sort(rng.choice(values, 1000)).astype(np.float64) for name, values in columns.items()}
        columns["constant"][::50] = [6, 8] * (decisions // 100)  # values that are not among the boundaries
        columns["wide"][:2] = np.iinfo(np.int64).min, np.iinfo(np.int64).max
        units = [2 * len(specs) + sum(values.shape[1] for values in embeddings.values()), *hidden, actions]
        specs += tuple(FeatureSpec(name, values.dtype.name, values.shape[1:]) for name, values in embeddings.items())
        columns |= embeddings
        layers = tuple(
            ((rng.normal(size=(a, b)) * np.sqrt(2 / a)).astype(np.float32), rng.normal(size=b).astype(np.float32) / 5)
            for a, b in itertools.pairwise(units)
        )
        policy = DensePolicy("inlining", specs, buckets, layers)
        # Centred logits, so that every action occurs.
        last = (layers[-1][0], layers[-1][1] - policy.logits(columns).mean(axis=0))
        return dataclasses.replace(policy, layers=(*layers[:-1], last)), columns

    return make
