"""The quantiles of a feature."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from components.formats.vocab import QUANTILES


def quantiles(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The 1000 quantiles of all elements of `values` (any shape, at least one), float64 nondecreasing.

    The k-th is the smallest value that at least a fraction k / 999 of the values do not exceed in rank (numpy's method
    "higher" at the levels 0, 1/999 ... 1): the first is the minimum, the last the maximum, and each is a value that
    really occurred, so the quantiles of an integer feature are integers. For a comparison with integers that is as good
    as interpolation: what is at least b is at least the next integer. Equal quantiles repeat, so that a bucket's number
    over 1000 stays an estimate of the distribution function.
    """
    levels = np.linspace(0, 1, QUANTILES)
    return np.quantile(values.reshape(-1), levels, method="higher").astype(np.float64)
