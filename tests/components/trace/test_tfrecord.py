"""TFRecord and SequenceExample encoder, checked against known bytes and TensorFlow's reader."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from components.core.formats.features import FeatureSpec
from components.core.formats.trace import ModuleTrace, TraceWriter
from components.platform.storage.manifest import require_artifact
from components.platform.storage.publish import publish
from components.trace.config import TFRECORD_FILE
from components.trace.tfrecord import export_tfrecord, sequence_example, write_record


def test_record_has_the_expected_bytes() -> None:
    """CRC-32C of "123456789" is 0xE3069283 (check value of RFC 3720's polynomial), masked as in TensorFlow."""
    stream = io.BytesIO()
    write_record(stream, b"123456789")
    data = stream.getvalue()
    assert data[:8] == (9).to_bytes(8, "little") and data[12:21] == b"123456789"
    masked = ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF
    assert data[21:] == masked.to_bytes(4, "little")


def test_sequence_example_has_the_expected_bytes() -> None:
    """Two steps of one feature, 1 and 300, encoded by the rules of protocol buffers."""
    step_1 = bytes([0x0A, 0x05, 0x1A, 0x03, 0x0A, 0x01, 0x01])
    step_300 = bytes([0x0A, 0x06, 0x1A, 0x04, 0x0A, 0x02, 0xAC, 0x02])
    entry = b"\x0a\x01f" + bytes([0x12, len(step_1) + len(step_300)]) + step_1 + step_300
    lists = bytes([0x0A, len(entry)]) + entry
    assert sequence_example({"f": np.array([1, 300])}) == bytes([0x12, len(lists)]) + lists


def write_trace(directory: Path, sizes: dict[str, int]) -> dict[str, ModuleTrace]:
    rng = np.random.default_rng(0)
    features = (FeatureSpec("cost", "int64", (1,)), FeatureSpec("weights", "float32", (2, 2)))
    modules = {}
    with publish(directory, "trace") as partial:
        writer = TraceWriter(partial, "inlining", "inlining_decision", features)
        for name, rows in sizes.items():
            zeros = np.zeros(rows, np.int32)
            # Few distinct values, as in real features, including the extremes of int64.
            cost = rng.choice(np.array([0, 1, 127, 128, -1, 2**63 - 1, -(2**63)]), (rows, 1))
            columns = {"cost": cost, "weights": rng.standard_normal((rows, 2, 2)).astype(np.float32)}
            modules[name] = ModuleTrace(
                module=name,
                text_size_bytes=1,
                compile_s=0.1,
                contexts=[""],
                context=zeros,
                names=["f"],
                step=np.arange(rows, dtype=np.int32),
                caller=zeros,
                callee=zeros,
                columns=columns,
                action=rng.integers(0, 2, rows),
            )
            writer.add(modules[name])
        writer.close("", "")
    return modules


def test_export_writes_a_record_per_module_with_decisions(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace", {"a": 3, "nothing": 0, "b": 5})
    assert export_tfrecord(tmp_path / "trace", tmp_path / "out") == 2
    assert [entry.name for entry in require_artifact(tmp_path / "out", "TFRecord trace").files] == [TFRECORD_FILE]
    write_trace(tmp_path / "trace", {"nothing": 0})
    assert export_tfrecord(tmp_path / "trace", tmp_path / "out") == 0
    assert (tmp_path / "out" / TFRECORD_FILE).read_bytes() == b""


@pytest.mark.tf
def test_tensorflow_reads_the_exported_trace(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    modules = write_trace(tmp_path / "trace", {"a": 3, "b": 700, "c": 1})
    export_tfrecord(tmp_path / "trace", tmp_path / "out")
    records = list(tf.data.TFRecordDataset(str(tmp_path / "out" / TFRECORD_FILE)))
    assert len(records) == 3
    parsed = {
        "cost": tf.io.FixedLenSequenceFeature([1], tf.int64),
        "weights": tf.io.FixedLenSequenceFeature([2, 2], tf.float32),
        "inlining_default": tf.io.FixedLenSequenceFeature([], tf.int64),
        "inlining_decision": tf.io.FixedLenSequenceFeature([], tf.int64),
        "reward": tf.io.FixedLenSequenceFeature([], tf.float32),
    }
    for record, module in zip(records, modules.values(), strict=True):
        _, sequence = tf.io.parse_single_sequence_example(record, sequence_features=parsed)
        for name, column in module.columns.items():
            np.testing.assert_array_equal(sequence[name].numpy(), column)
        np.testing.assert_array_equal(sequence["inlining_decision"].numpy(), module.action)
        np.testing.assert_array_equal(sequence["inlining_default"].numpy(), module.action)
        np.testing.assert_array_equal(sequence["reward"].numpy(), np.zeros(len(module.action), np.float32))
