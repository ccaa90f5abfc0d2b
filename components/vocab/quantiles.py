"""The quantiles of a feature."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from components.core.formats.vocab import QUANTILES


def quantiles(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the 1000 quantiles of all elements of `values` (any shape, at least one), float64 nondecreasing.

    The k-th, k = 0 ... 999, is the value of rank ceil(k * (N - 1) / 999) among the N sorted values, counted from 0: the
    first is the minimum, the last the maximum, and each is a value that really occurred (numpy's method "higher", but
    with ranks in integers). So the quantiles of an integer feature are integers, which for a comparison with integers
    is as good as interpolation: what is at least b is at least the next integer above b. Equal quantiles repeat, so
    that the number of quantiles that a value reaches, over 1000, estimates the distribution function.
    """
    ordered = np.sort(values, axis=None)
    steps = QUANTILES - 1
    ranks = (np.arange(QUANTILES) * (len(ordered) - 1) + steps - 1) // steps
    return ordered[ranks].astype(np.float64)
