"""TensorBoard's view of a training: what is written after each iteration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

PERCENTILES = (0, 10, 25, 50, 75, 90, 100)


class Summaries:
    """Writes event files below ROOT/tensorboard. Steps are iterations."""

    def __init__(self, root: Path) -> None:
        self._writer = tf.summary.create_file_writer(str(root / "tensorboard"))

    def iteration(
        self,
        iteration: int,
        rewards: NDArray[np.float64],
        losses: Mapping[str, float],
        seconds: Mapping[str, float],
        failures: int,
        decisions: int,
    ) -> None:
        """One iteration: `rewards` of any shape, `losses` and `seconds` by name, modules that failed, decisions."""
        with self._writer.as_default(step=iteration):
            tf.summary.scalar("reward_distribution/mean", float(rewards.mean()))
            for percentile in PERCENTILES:
                value = float(np.percentile(rewards, percentile))
                tf.summary.scalar(f"reward_distribution/percentile_{percentile}", value)
            for name, value in losses.items():
                tf.summary.scalar(f"losses/{name}", value)
            for phase, value in seconds.items():
                tf.summary.scalar(f"seconds/{phase}", value)
            tf.summary.scalar("compile/failures", failures)
            tf.summary.scalar("compile/decisions", decisions)

    def validation(self, iteration: int, reduction_percent: float) -> None:
        """What the greedy policy makes of the validation modules, against the heuristic."""
        with self._writer.as_default(step=iteration):
            tf.summary.scalar("validation/reduction_percent", reduction_percent)

    def flush(self) -> None:
        """Makes what was written visible."""
        self._writer.flush()
