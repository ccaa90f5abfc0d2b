"""Writes TensorBoard summaries of a training, and its curve (core/formats/training_curve.py).

Event files are append-only. A checkpoint records the length of each file, and a training that resumes from it truncates
them, so that every iteration appears once. Files have unique names. A new one is started when the current one is large,
because object storage uploads a changed file as a whole. The curve, of 200 bytes per iteration, is in the checkpoint.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from components.core.formats.training_curve import CURVE, PERCENTILES, write_curve
from components.platform.storage.directory import make_directory
from components.platform.storage.shared_state.workdir import list_files, pull_file, push_file, remove_file
from components.platform.storage.uri import display_path
from components.ppo.training_state import TrainingState

MAX_FILE_BYTES = 1 << 16
_EVENT_FILES = "events.out.tfevents.*"


class Summaries:
    """Writes event files and the curve in ROOT/tensorboard. Steps are iterations.

    Attributes:
        curve: rows of the curve.
    """

    def __init__(self, root: Path) -> None:
        self.curve: list[dict[str, float]] = []
        self._directory = root / "tensorboard"
        self._closed: dict[str, int] = {}
        self._curve_length: dict[str, int] = {}
        self._pushed: dict[str, int] = {}
        self._suffix = ""
        self._open: Any = None

    def command(self) -> str:
        """Return the command that shows the summaries, also of a training in progress."""
        return f"tensorboard --logdir {display_path(self._directory)}"

    def rewind(self, lengths: Mapping[str, int], curve: Sequence[dict[str, float]] = ()) -> None:
        """Restore the state in which `file_lengths` returned `lengths`; files of others stay.

        Args:
            curve: its rows in that state; empty also for a training of a version that did not write it.
        """
        stored = {name: length for name, length in list_files(self._directory).items() if fnmatch(name, _EVENT_FILES)}
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
        self.curve = [*curve]
        self._write_curve()
        self.push()

    def iteration(
        self,
        state: TrainingState,
        rewards: NDArray[np.float64],
        losses: Mapping[str, float],
        seconds: Mapping[str, float],
        failures: int,
        decisions: int,
    ) -> None:
        distribution = {"mean": float(rewards.mean())}
        distribution |= {f"percentile_{p}": float(np.percentile(rewards, p)) for p in PERCENTILES}
        counts = {"failures": failures, "decisions": decisions}
        groups = {"reward_distribution": distribution, "losses": losses, "seconds": seconds, "compile": counts}
        with self._writer().as_default(step=state.iteration):
            for group, values in groups.items():
                for name, value in values.items():
                    tf.summary.scalar(f"{group}/{name}", value)
        self._add_to_curve(state, {f"reward_{name}": value for name, value in distribution.items()})

    def validation(self, state: TrainingState, reduction_percent: float) -> None:
        """Write the reduction of the validation modules under the greedy policy against the heuristic."""
        with self._writer().as_default(step=state.iteration):
            tf.summary.scalar("validation/reduction_percent", reduction_percent)
        self._add_to_curve(state, {"validation_reduction_percent": reduction_percent})

    def _add_to_curve(self, state: TrainingState, values: Mapping[str, float]) -> None:
        if not self.curve or self.curve[-1]["iteration"] != state.iteration:
            self.curve.append({"iteration": state.iteration, "minutes": state.trained_s / 60})
        self.curve[-1].update(values)
        self._write_curve()

    def _write_curve(self) -> None:
        make_directory(self._directory)
        write_curve(self._directory / CURVE, self.curve)
        self._curve_length = {CURVE: (self._directory / CURVE).stat().st_size}

    def file_lengths(self) -> dict[str, int]:
        """Flush, and return the length of each file in bytes."""
        if self._open is not None:
            self._open.flush()
            (path,) = self._directory.glob(f"*{self._suffix}")
            if (length := path.stat().st_size) < MAX_FILE_BYTES:
                return {**self._closed, path.name: length}
            self._open.close()
            self._open = None
            self._closed[path.name] = path.stat().st_size
        return dict(self._closed)

    def push(self) -> None:
        """Upload changed files if the directory is a mirror of object storage."""
        for name, length in {**self.file_lengths(), **self._curve_length}.items():
            if self._pushed.get(name) != length:
                push_file(self._directory / name)
                self._pushed[name] = length

    def _writer(self) -> Any:
        if self._open is None:
            self._suffix = f".{secrets.token_hex(4)}.v2"
            self._open = tf.summary.create_file_writer(str(self._directory), filename_suffix=self._suffix)
        return self._open
