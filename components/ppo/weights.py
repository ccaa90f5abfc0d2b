"""Policies between iterations: their moving average, and the form that the training clang takes."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from components.policy.dense import DensePolicy
from components.policy.export import export_fast


def blend(average: DensePolicy, latest: DensePolicy, decay: float) -> DensePolicy:
    """`decay` of the average's weights and 1 - `decay` of the latest's; both are of one network."""
    layers = tuple(
        (
            (decay * w + (1 - decay) * v).astype(np.float32),
            (decay * b + (1 - decay) * c).astype(np.float32),
        )
        for (w, b), (v, c) in zip(average.layers, latest.layers, strict=True)
    )
    return dataclasses.replace(latest, layers=layers)


@contextmanager
def emitted(policy: DensePolicy, clang: Path) -> Iterator[Path]:
    """A directory with the policy as the training clang loads it, gone when the block ends."""
    with tempfile.TemporaryDirectory(prefix="mlgo-policy-") as directory:
        export_fast(policy, Path(directory), clang)
        yield Path(directory)
