"""The common scale of gains and advantages, which a few huge functions would dominate otherwise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SCALE_DECAY = 0.9


def update_scale(scale: float | None, gains: NDArray[np.float64]) -> float:
    """Return the moving average of the root of the mean absolute gain or advantage.

    Args:
        scale: the average so far; None before the first measurement.
        gains: [N], of one iteration.
    """
    rooted = np.sqrt(np.mean(np.abs(gains)))
    return float(rooted if scale is None else SCALE_DECAY * scale + (1 - SCALE_DECAY) * rooted)


def normalize_advantages(advantages: NDArray[np.float64], scale: float, clip: float = 4.0) -> NDArray[np.float32]:
    """Return the clipped signed square root in units of `scale`.

    Args:
        advantages: [N], in bytes or log scores.
        scale: of their square roots.
        clip: largest absolute value of the result.
    """
    rooted = np.sign(advantages) * np.sqrt(np.abs(advantages))
    return np.clip(rooted / max(scale, 1e-6), -clip, clip).astype(np.float32)
