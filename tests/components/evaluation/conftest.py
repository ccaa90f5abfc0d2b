"""Sizes of a small corpus that the tests of this step share: two known projects, one that was held out whole."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from components.evaluation.measurements import Excluded, Measurements


def measurements(**sizes: list[int]) -> Measurements:
    """Four modules; keyword arguments replace or add variants ("inline_threshold_5" is the sweep's 5)."""
    columns = {
        "baseline": [1000, 3000, 400, 600],
        "policy": [900, 3100, 380, 600],
        "warmstart": [1000, 3000, 400, 610],
        "inline_threshold_5": [1000, 3000, 400, 600],
        "inline_threshold_15": [990, 2950, 410, 600],
    } | sizes
    named = {name.replace("inline_threshold_", "inline-threshold="): np.array(c) for name, c in columns.items()}
    return Measurements(
        modules=("zstd/a.o", "zstd/b.o", "lz4/c.o", "snappy/<script>alert(1)</script>$x_{$.o"),
        projects=("zstd", "zstd", "lz4", "snappy"),
        unseen_project=np.array([False, False, False, True]),
        sizes=named,
        excluded=(Excluded("zstd/broken.o", "policy", "timeout", "no answer within 60 s <b>"),),
        compile_s={"baseline": 1.5},
    )


@pytest.fixture
def make_measurements() -> Callable[..., Measurements]:
    return measurements


@pytest.fixture
def measured() -> Measurements:
    return measurements()
