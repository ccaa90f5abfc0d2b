"""Writes TensorBoard summaries of a training.

Event files are append-only. A checkpoint records the length of each file, and a training that resumes from it truncates
them, so that every iteration appears once. Files have unique names. A new one is started when the current one is large,
because object storage uploads a changed file as a whole.
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

from components.platform.storage.shared_state.workdir import listing, pull_file, push_file, remove_file
from components.platform.storage.uri import display_path

PERCENTILES = (0, 10, 25, 50, 75, 90, 100)
MAX_FILE_BYTES = 1 << 16
_EVENT_FILES = "events.out.tfevents.*"


class Summaries:
    """Writes event files in ROOT/tensorboard. Steps are iterations."""

    def __init__(self, root: Path) -> None:
        self._directory = root / "tensorboard"
        self._closed: dict[str, int] = {}
        self._pushed: dict[str, int] = {}
        self._suffix = ""
        self._open: Any = None

    def command(self) -> str:
        """Return the command that shows the summaries, also of a training in progress."""
        return f"tensorboard --logdir {display_path(self._directory)}"

    def rewind(self, lengths: Mapping[str, int]) -> None:
        """Restore the event files to the state in which `file_lengths` returned `lengths`; other files stay."""
        stored = {name: length for name, length in listing(self._directory).items() if fnmatch(name, _EVENT_FILES)}
        local = {path.name for path in self._directory.glob(_EVENT_FILES)}
        for name in (stored.keys() | local) - lengths.keys():
            remove_file(self._directory / name)
        for name, length in lengths.items():
            path = self._directory / name
            if name in stored and (name not in local or path.stat().st_size < length):
                pull_file(path)
            if not path.is_file():
                continue  # removed by a user: the curve has a gap
            if path.stat().st_size > length:
                os.truncate(path, length)
            self._closed[name] = path.stat().st_size
            self._pushed[name] = stored.get(name, 0)
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
        """Write an iteration.

        Args:
            rewards: of any shape.
            losses: by name.
            seconds: by phase.
            failures: number of modules that failed.
            decisions: number of decisions that were learned from.
        """
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
        """Write the reduction of the validation modules under the greedy policy against the heuristic."""
        with self._writer().as_default(step=iteration):
            tf.summary.scalar("validation/reduction_percent", reduction_percent)

    def file_lengths(self) -> dict[str, int]:
        """Flush, and return the length of each file in bytes."""
        if self._open is not None:
            self._open.flush()
            path = self._path()
            if (length := path.stat().st_size) < MAX_FILE_BYTES:
                return {**self._closed, path.name: length}
            self._open.close()
            self._open = None
            self._closed[path.name] = path.stat().st_size
        return dict(self._closed)

    def push(self) -> None:
        """Upload changed files if the directory is a mirror of object storage."""
        for name, length in self.file_lengths().items():
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
