"""Tests with event files of TensorBoard's own writer."""

from __future__ import annotations

import struct
from pathlib import Path

import google_crc32c
import pytest

from components.evaluation.report.event_file import read_event_file

event_pb2 = pytest.importorskip("tensorboard.compat.proto.event_pb2")
from tensorboard.compat.proto import summary_pb2, tensor_pb2, types_pb2  # noqa: E402


def record(data: bytes) -> bytes:
    def masked(part: bytes) -> bytes:
        crc = google_crc32c.value(part)
        return struct.pack("<I", (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF)

    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def event(step: int, wall_time_s: float, **tags: object) -> bytes:
    values = []
    for tag, value in tags.items():
        if isinstance(value, float):
            values.append(summary_pb2.Summary.Value(tag=tag, simple_value=value))
        else:
            values.append(summary_pb2.Summary.Value(tag=tag, tensor=value))
    message = event_pb2.Event(wall_time=wall_time_s, step=step, summary=summary_pb2.Summary(value=values))
    return record(message.SerializeToString())


def test_all_encodings_of_a_scalar(tmp_path: Path) -> None:
    content = tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, tensor_content=struct.pack("<f", 0.25))
    floats = tensor_pb2.TensorProto(dtype=types_pb2.DT_FLOAT, float_val=[0.5])
    doubles = tensor_pb2.TensorProto(dtype=types_pb2.DT_DOUBLE, double_val=[0.125])
    histogram = tensor_pb2.TensorProto(dtype=types_pb2.DT_DOUBLE, double_val=[1.0, 2.0, 3.0])
    path = tmp_path / "events"
    path.write_bytes(
        record(event_pb2.Event(wall_time=1.0, file_version="brain.Event:2").SerializeToString())
        + event(300, 1e9, a=2.0, b=content, c=floats, d=doubles, e=histogram)
    )
    file = read_event_file(path)
    assert file.start_s == 1.0
    scalars = file.scalars
    assert [(s.tag, s.value) for s in scalars] == [("a", 2.0), ("b", 0.25), ("c", 0.5), ("d", 0.125)]
    assert {(s.step, s.wall_time_s) for s in scalars} == {(300, 1e9)}


def test_incomplete_last_record_is_ignored(tmp_path: Path) -> None:
    first, second = event(1, 1.0, a=1.0), event(2, 2.0, a=2.0)
    path = tmp_path / "events"
    for cut in range(len(second)):
        path.write_bytes(first + second[:cut])
        assert [scalar.step for scalar in read_event_file(path).scalars] == [1]


def test_reading_stops_at_a_damaged_record(tmp_path: Path) -> None:
    path = tmp_path / "events"
    damaged = bytearray(event(1, 1.0, a=1.0) + event(2, 2.0, a=2.0))
    damaged[-6] ^= 1
    path.write_bytes(bytes(damaged))
    assert [scalar.step for scalar in read_event_file(path).scalars] == [1]


@pytest.mark.tf
def test_scalar_written_by_tensorflow(tmp_path: Path) -> None:
    tensorflow = pytest.importorskip("tensorflow")
    with tensorflow.summary.create_file_writer(str(tmp_path)).as_default():
        tensorflow.summary.scalar("reward_distribution/mean", 0.015, step=7)
    (path,) = tmp_path.iterdir()
    (scalar,) = read_event_file(path).scalars
    assert (scalar.tag, scalar.step) == ("reward_distribution/mean", 7)
    assert scalar.value == pytest.approx(0.015)
