"""The training's reward over time, from what the training wrote for TensorBoard."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.core.console import UserError
from components.evaluation.report.event_file import EventFile, read_event_file

REWARD_SECTION = "reward_distribution"
"""The section of the inlining demo: the mean and percentiles of the rewards of an iteration's modules."""
VALIDATION = "validation/reduction_percent"
"""How much smaller than -Oz the greedy policy makes the validation modules, in percent."""


@dataclass(frozen=True)
class Series:
    """One curve: minutes of training (float64 [N], rising, pauses between a kill and a resume left out), values [N]."""

    minutes: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class Curve:
    """What the report draws: rewards, so 0 is the heuristic's size and 0.02 is 2% smaller.

    `low` and `high` are two percentiles of the reward distribution (or None), `band_label` names them. `validation` is
    the greedy policy on the validation modules, where the training looked at them.
    """

    mean: Series
    mean_label: str
    low: Series | None = None
    high: Series | None = None
    band_label: str = ""
    validation: Series | None = None


def read_curve(directory: Path) -> Curve | None:
    """The reward curve of a training from the event files below `directory`; None where they hold no reward.

    Raises:
        UserError: no such directory.
    """
    if not directory.is_dir():
        raise UserError(f"no training at {directory}: no such directory", "pass what PPO wrote as --ppo-root")
    # Not by the time of the file: what came from object storage has that of the download.
    runs = sorted((read_event_file(path) for path in directory.rglob("*.tfevents.*")), key=lambda run: run.start_s)
    series = _join(runs)
    rewards = {tag.rsplit("/", 1)[-1]: found for tag, found in series.items() if REWARD_SECTION in tag}
    mean_tag = next((tag for tag in rewards if re.search("mean|average", tag, re.IGNORECASE)), None)
    if mean_tag is None:
        return None
    percentiles = {int(m[0]): found for tag, found in rewards.items() if (m := re.findall(r"\d+", tag))}
    low = max((p for p in percentiles if p <= 25), default=None)
    high = min((p for p in percentiles if p >= 75), default=None)
    banded = low is not None and high is not None
    return Curve(
        mean=rewards[mean_tag],
        mean_label="mean over an iteration's training modules",
        low=percentiles[low] if low is not None and banded else None,
        high=percentiles[high] if high is not None and banded else None,
        band_label=f"percentiles {low} to {high}" if banded else "",
        validation=_validation(series),
    )


def _validation(series: dict[str, Series]) -> Series | None:
    found = series.get(VALIDATION)
    return None if found is None else Series(found.minutes, found.values / 100.0)


def _join(runs: list[EventFile]) -> dict[str, Series]:
    """Curves over all files of one training: a long or a resumed one has several.

    A resumed training may repeat steps that its killed run had already reported: the later run holds. Time goes on
    from where the last kept step stood.
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
