"""Tests of the reward curve of trainings that finished, were killed, or wrote nothing."""

from __future__ import annotations

import os
import struct
from pathlib import Path

import google_crc32c
import pytest

from components.evaluation.report.training_curve import read_curve
from components.platform.errors import UserError

event_pb2 = pytest.importorskip("tensorboard.compat.proto.event_pb2")
from tensorboard.compat.proto import summary_pb2  # noqa: E402

MEAN = "reward_distribution/mean"


def write_run(path: Path, start_s: float, rows: list[tuple[int, float, dict[str, float]]], order: int = 0) -> None:
    """Write an event file of one process; rows are (step, seconds since its start, tag -> value)."""
    events = [event_pb2.Event(wall_time=start_s, file_version="brain.Event:2")]
    for step, seconds, tags in rows:
        values = [summary_pb2.Summary.Value(tag=tag, simple_value=value) for tag, value in tags.items()]
        summary = summary_pb2.Summary(value=values)
        events.append(event_pb2.Event(wall_time=start_s + seconds, step=step, summary=summary))
    data = b""
    for event in events:
        content = event.SerializeToString()
        for part in (struct.pack("<Q", len(content)), content):
            crc = google_crc32c.value(part)
            data += part + struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (start_s + order, start_s + order))


def test_mean_percentiles_and_validation(tmp_path: Path) -> None:
    tags = {
        MEAN: 0.01,
        "reward_distribution/percentile_0": -0.5,
        "reward_distribution/percentile_25": 0.0,
        "reward_distribution/percentile_50": 0.01,
        "reward_distribution/percentile_75": 0.02,
        "reward_distribution/percentile_100": 0.5,
        "validation/reduction_percent": 1.5,
        "loss/total": 3.0,
    }
    write_run(tmp_path / "events.out.tfevents.1", 1e9, [(1, 60, tags), (2, 120, tags)])
    curve = read_curve(tmp_path)
    assert curve is not None
    assert curve.mean.minutes.tolist() == pytest.approx([1.0, 2.0])
    assert curve.mean.values.tolist() == pytest.approx([0.01, 0.01])
    assert curve.band_label == "percentiles 25 to 75"
    assert curve.low is not None and curve.low.values[0] == pytest.approx(0.0)
    assert curve.high is not None and curve.high.values[0] == pytest.approx(0.02)
    assert curve.validation is not None and curve.validation.values[0] == pytest.approx(0.015)


def test_resumed_training_is_one_curve(tmp_path: Path) -> None:
    write_run(tmp_path / "train" / "events.out.tfevents.1", 1e9, [(s, 60 * s, {MEAN: s / 100}) for s in (1, 2, 3)])
    # Killed after step 3, resumed an hour later from the checkpoint of step 2.
    write_run(tmp_path / "train" / "events.out.tfevents.2", 1e9 + 3600, [(3, 30, {MEAN: 0.5}), (4, 90, {MEAN: 0.6})])
    curve = read_curve(tmp_path)
    assert curve is not None
    assert curve.mean.values.tolist() == pytest.approx([0.01, 0.02, 0.5, 0.6])
    assert curve.mean.minutes.tolist() == pytest.approx([1.0, 2.0, 2.5, 3.5])


def test_no_curve_without_rewards(tmp_path: Path) -> None:
    assert read_curve(tmp_path) is None
    write_run(tmp_path / "events.out.tfevents.1", 1e9, [(1, 1, {"loss/total": 1.0})])
    assert read_curve(tmp_path) is None


def test_error_names_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no training at"):
        read_curve(tmp_path / "nothing")
