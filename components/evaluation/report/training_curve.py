"""Reads the training's reward over time from its TensorBoard events."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.evaluation.report.event_file import EventFile, read_event_file
from components.platform.errors import UserError

REWARD_SECTION = "reward_distribution"
"""Section of the inlining demo: mean and percentiles of the rewards of an iteration's modules."""
VALIDATION = "validation/reduction_percent"
"""Reduction of the validation modules under the greedy policy against -Oz, in percent."""


@dataclass(frozen=True)
class Series:
    """One curve: minutes of training (float64 [N], ascending, without pauses between kill and resume), values [N]."""

    minutes: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class Curve:
    """Curves of the report. Values are rewards: 0 is the heuristic's size and 0.02 is 2% smaller.

    `low` and `high` are two percentiles of the reward distribution (or None), `band_label` names them. `validation` is
    the greedy policy on the validation modules, if the training measured them.
    """

    mean: Series
    mean_label: str
    low: Series | None = None
    high: Series | None = None
    band_label: str = ""
    validation: Series | None = None


def read_curve(directory: Path) -> Curve | None:
    """Read the reward curve of a training from the event files below `directory`; None if they have no reward.

    Raises:
        UserError: the directory does not exist.
    """
    if not directory.is_dir():
        raise UserError(
            f"no training at {directory}: no such directory", "pass the --root-dir of the training as --ppo-root"
        )
    # Not by the file's time: for a file from object storage, that is the time of the download.
    runs = sorted((read_event_file(path) for path in directory.rglob("*.tfevents.*")), key=lambda run: run.start_s)
    series = _concatenate(runs)
    rewards = {tag.rsplit("/", 1)[-1]: found for tag, found in series.items() if REWARD_SECTION in tag}
    mean_tag = next((tag for tag in rewards if re.search("mean|average", tag, re.IGNORECASE)), None)
    if mean_tag is None:
        return None
    percentiles = {int(m[0]): found for tag, found in rewards.items() if (m := re.findall(r"\d+", tag))}
    low = max((p for p in percentiles if p <= 25), default=None)
    high = min((p for p in percentiles if p >= 75), default=None)
    has_band = low is not None and high is not None
    return Curve(
        mean=rewards[mean_tag],
        mean_label="mean over an iteration's training modules",
        low=percentiles[low] if low is not None and has_band else None,
        high=percentiles[high] if high is not None and has_band else None,
        band_label=f"percentiles {low} to {high}" if has_band else "",
        validation=_validation(series),
    )


def _validation(series: dict[str, Series]) -> Series | None:
    percent = series.get(VALIDATION)
    return None if percent is None else Series(percent.minutes, percent.values / 100.0)


def _concatenate(runs: list[EventFile]) -> dict[str, Series]:
    """Return the curves over all files of one training; a long or a resumed training has several files.

    A resumed training may repeat steps that its killed run reported: the later run replaces them. Time continues from
    the last kept step.
    """
    points: dict[str, dict[int, tuple[float, float]]] = defaultdict(dict)  # tag -> step -> (minutes, value)
    for run in runs:
        if not run.scalars:
            continue
        first_steps: dict[str, int] = {}
        for scalar in run.scalars:
            first_steps[scalar.tag] = min(scalar.step, first_steps.get(scalar.tag, scalar.step))
        for tag, first_step in first_steps.items():
            for step in [step for step in points[tag] if step >= first_step]:
                del points[tag][step]
        offset = max((minutes for kept in points.values() for minutes, _ in kept.values()), default=0.0)
        for scalar in run.scalars:
            minutes = offset + (scalar.wall_time_s - run.start_s) / 60.0
            points[scalar.tag][scalar.step] = (minutes, scalar.value)
    curves = {}
    for tag, kept in points.items():
        if kept:
            rows = np.array([kept[step] for step in sorted(kept)], dtype=np.float64)
            curves[tag] = Series(rows[:, 0], rows[:, 1])
    return curves
