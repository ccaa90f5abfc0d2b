"""TensorBoard's view of a training: what is written after each iteration.

Event files only grow. So a checkpoint names each with its length, and a training that goes on from it cuts them there:
what was written of iterations that are done again is gone, and each iteration appears once. Files are named after
their writer, and another is begun when one has grown, for in object storage a file that has grown is uploaded whole.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from components.core.storage.workdir import listing, pull_file, push_file, remove_file

PERCENTILES = (0, 10, 25, 50, 75, 90, 100)
FULL_BYTES = 1 << 16
_OURS = "events.out.tfevents.*"


class Summaries:
    """Writes event files in ROOT/tensorboard. Steps are iterations."""

    def __init__(self, root: Path) -> None:
        self._directory = root / "tensorboard"
        self._closed: dict[str, int] = {}
        self._pushed: dict[str, int] = {}
        self._suffix = ""
        self._open: Any = None

    def rewind(self, lengths: Mapping[str, int]) -> None:
        """Makes of the event files what they were when `kept` returned `lengths`; what else is there stays."""
        there = {name: length for name, length in listing(self._directory).items() if fnmatch(name, _OURS)}
        here = {path.name for path in self._directory.glob(_OURS)}
        for name in (there.keys() | here) - lengths.keys():
            remove_file(self._directory / name)
        for name, length in lengths.items():
            path = self._directory / name
            if name in there and (name not in here or path.stat().st_size < length):
                pull_file(path)
            if not path.is_file():
                continue  # somebody removed it: the curve has a gap
            if path.stat().st_size > length:
                os.truncate(path, length)
            self._closed[name] = path.stat().st_size
            self._pushed[name] = there.get(name, 0)
        self.push()

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
        with self._writer().as_default(step=iteration):
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
        with self._writer().as_default(step=iteration):
            tf.summary.scalar("validation/reduction_percent", reduction_percent)

    def kept(self) -> dict[str, int]:
        """Makes what was written visible; returns the bytes of each file."""
        if self._open is not None:
            self._open.flush()
            path = self._path()
            if (length := path.stat().st_size) < FULL_BYTES:
                return {**self._closed, path.name: length}
            self._open.close()
            self._open = None
            self._closed[path.name] = path.stat().st_size
        return dict(self._closed)

    def push(self) -> None:
        """Uploads what has changed, where the directory is in object storage."""
        for name, length in self.kept().items():
            if self._pushed.get(name) != length:
                push_file(self._directory / name)
                self._pushed[name] = length

    def _writer(self) -> Any:
        if self._open is None:
            self._suffix = f".{secrets.token_hex(4)}.v2"
            self._open = tf.summary.create_file_writer(str(self._directory), filename_suffix=self._suffix)
        return self._open

    def _path(self) -> Path:
        (path,) = self._directory.glob(f"*{self._suffix}")
        return path
