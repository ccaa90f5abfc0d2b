"""The curve of a training: rewards and validations in tensorboard/training.csv, a row per iteration.

A reward of 0 is the heuristic's result, and 0.02 is 2% better. Iteration 0 is the policy that training started from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.input_files import expect_shape, read_text
from components.platform.storage.output_files import replace_text
from components.platform.storage.uri import display_path

CURVE = "training.csv"
PERCENTILES = (0, 10, 25, 50, 75, 90, 100)
_MEAN, _LOW, _HIGH = "reward_mean", "reward_percentile_25", "reward_percentile_75"
_VALIDATION = "validation_reduction_percent"
_COLUMNS = ("iteration", "minutes", _MEAN, *(f"reward_percentile_{p}" for p in PERCENTILES), _VALIDATION)
_REMEDY = "pass the --root-dir of the training as --ppo-root"


@dataclass(frozen=True)
class Series:
    """Values over the minutes of a training, pauses left out: float64 [N] each, minutes ascending."""

    minutes: NDArray[np.float64]
    values: NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """A training as the report draws it.

    Attributes:
        mean, low, high: mean and quartiles of the rewards of an iteration's modules.
        validation: reward of the greedy policy on the validation modules.
    """

    mean: Series
    low: Series
    high: Series
    validation: Series


def write_curve(path: Path, rows: Sequence[Mapping[str, float]]) -> None:
    """Replace the file atomically. rows: column -> value; what an iteration did not measure is missing."""
    lines = [",".join(str(row.get(column, "")) for column in _COLUMNS) for row in rows]
    replace_text(path, "".join(f"{line}\n" for line in (",".join(_COLUMNS), *lines)))


def read_curve(directory: Path) -> Curve | None:
    """Read the curve of a training from its root directory or policy; None, and a message, if it has none.

    Raises:
        UserError: the directory does not exist, or the file is damaged.
    """
    if not directory.is_dir():
        raise UserError(f"no training at {directory}: no such directory", _REMEDY)
    path = min(directory.rglob(CURVE), default=None)
    if path is None:
        if any(directory.rglob("*.tfevents.*")):
            say(f"no training curve in the report: {display_path(directory)} has TensorBoard events, but no {CURVE}")
        return None
    header, *lines = read_text(path).splitlines() or [""]
    with expect_shape(path, "a training's curve", _REMEDY):
        rows = [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]
        measured, validated = ([row for row in rows if row[column]] for column in (_MEAN, _VALIDATION))
        mean, low, high = (_series(measured, column) for column in (_MEAN, _LOW, _HIGH))
        return Curve(mean, low, high, _series(validated, _VALIDATION, 100.0)) if measured else None


def _series(rows: Sequence[Mapping[str, str]], column: str, divisor: float = 1.0) -> Series:
    return Series(
        np.array([float(row["minutes"]) for row in rows]), np.array([float(row[column]) / divisor for row in rows])
    )
