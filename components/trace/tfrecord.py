"""Converts a trace to the format of google/ml-compiler-opt's tools, without TensorFlow.

There is one tf.train.SequenceExample per module (and per context, if the problem has several), with one step per
decision. It has a feature list for each feature of the compiler, for the reward, and for the decision under each of its
names: the decision taken and, if LLVM logs it, the heuristic's decision. Both are equal here because the heuristic
decided.

A TFRecord is: length (uint64), masked crc32c of those 8 bytes (uint32), the data, its masked crc32c (uint32), all
little-endian (tensorflow/core/lib/io/record_writer.h). The field numbers below are those of the protocol buffers in
tensorflow/core/example. Only feature lists of integers and of floats are supported, which is all that a trace needs.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from io import BufferedIOBase
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c
import numpy as np
import numpy.typing as npt

from components.core import problems
from components.core.formats.trace import load_trace, read_columns
from components.platform.console import Progress
from components.platform.storage.publish import publish
from components.trace.config import TFRECORD_FILE

Array = npt.NDArray[Any]

_MASK_DELTA = 0xA282EAD8
_LENGTH_DELIMITED = 2
# SequenceExample.feature_lists = 2, FeatureLists.feature_list = 1 (a map: key = 1, value = 2), FeatureList.feature = 1,
# Feature.float_list = 2, Feature.int64_list = 3, FloatList.value and Int64List.value = 1, packed.
_FEATURE_LISTS = 2
_FLOAT_LIST = 2
_INT64_LIST = 3
_LENGTH_BYTES, _CHECKSUM_BYTES = 8, 4
_MAX_RECORD_BYTES = (1 << 31) - 1
"""Limit of protocol buffers."""
_READ_BYTES = 1 << 20
"""What is read at once, so that a short file that declares a long record takes no memory."""


def write_record(stream: BinaryIO, data: bytes) -> None:
    """Append one record."""
    length = struct.pack("<Q", len(data))
    stream.write(length + _masked_crc32c(length) + data + _masked_crc32c(data))


def read_record(stream: BinaryIO | BufferedIOBase) -> bytes | None:
    """Return the data of the next record, None at the end.

    Raises:
        ValueError: the record is damaged.
    """
    length = stream.read(_LENGTH_BYTES)
    if not length:
        return None
    length += _read(stream, _LENGTH_BYTES - len(length))
    if _read(stream, _CHECKSUM_BYTES) != _masked_crc32c(length):
        raise ValueError("its length is damaged")
    size = int.from_bytes(length, "little")
    if size > _MAX_RECORD_BYTES:
        raise ValueError(f"it has {size} bytes, but a protocol buffer has at most {_MAX_RECORD_BYTES}")
    data = _read(stream, size)
    if _read(stream, _CHECKSUM_BYTES) != _masked_crc32c(data):
        raise ValueError("its data is damaged")
    return data


def _read(stream: BinaryIO | BufferedIOBase, size: int) -> bytes:
    parts = []
    while size:
        parts.append(stream.read(min(size, _READ_BYTES)))
        if not parts[-1]:
            raise ValueError(f"truncated: {size} bytes are missing")
        size -= len(parts[-1])
    return b"".join(parts)


def sequence_example(feature_lists: Mapping[str, Array]) -> bytes:
    """Return a serialized tf.train.SequenceExample.

    Args:
        feature_lists: name -> array of shape [N] or [N, *shape], which becomes a list of N features. Integer arrays
            become int64_list, floating-point arrays float_list (float32).
    """
    entries = [_field(1, name.encode()) + _field(2, _feature_list(values)) for name, values in feature_lists.items()]
    return _field(_FEATURE_LISTS, b"".join(_field(1, entry) for entry in entries))


def _feature_list(values: Array) -> bytes:
    """Return a FeatureList. Each distinct step is encoded only once because the values of a feature repeat."""
    steps = values.reshape(len(values), -1)
    if steps.shape[1] == 1:
        distinct, inverse = np.unique(steps[:, 0], return_inverse=True)
        distinct = distinct[:, None]
    else:
        distinct, inverse = np.unique(steps, axis=0, return_inverse=True)
    if np.issubdtype(values.dtype, np.floating):
        kind, packed = _FLOAT_LIST, [row.astype("<f4").tobytes() for row in distinct]
    else:
        # Protocol buffers encode negative numbers as their 64-bit two's complement.
        kind = _INT64_LIST
        packed = [b"".join(_varint(value & 0xFFFFFFFFFFFFFFFF) for value in row) for row in distinct.tolist()]
    encoded = [_field(1, _field(kind, _field(1, content))) for content in packed]
    return b"".join(map(encoded.__getitem__, inverse.reshape(-1).tolist()))


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    groups = bytearray()
    while value > 0x7F:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    groups.append(value)
    return bytes(groups)


def _masked_crc32c(data: bytes) -> bytes:
    checksum = google_crc32c.value(data)
    return struct.pack("<I", ((checksum >> 15 | checksum << 17) + _MASK_DELTA) & 0xFFFFFFFF)


def export_tfrecord(trace_directory: Path, output: Path) -> int:
    """Write the artifact `output` with one TFRecord file, and return the number of records.

    Modules without decisions have no record: nothing can be learned from a sequence without steps.
    """
    trace = load_trace(trace_directory)
    names = [spec.name for spec in trace.features]
    columns = read_columns(trace_directory, ["module", "context", *names, "action", "reward"])
    module, context = columns.pop("module"), columns.pop("context")
    action, reward = columns.pop("action"), columns.pop("reward")
    problem = problems.get(trace.problem)
    decision_names = [name for name in (problem.policy.default_decision, problem.policy.decision) if name is not None]
    columns |= {name: action for name in decision_names} | {"reward": reward}
    changes = np.flatnonzero((module[1:] != module[:-1]) | (context[1:] != context[:-1])) + 1
    bounds = [0, *changes.tolist(), len(module)] if len(module) else []
    num_sequences = max(0, len(bounds) - 1)
    with (
        publish(output, "TFRecord trace") as directory,
        open(directory / TFRECORD_FILE, "wb") as stream,
        Progress("exporting sequences", num_sequences) as progress,
    ):
        for begin, end in pairwise(bounds):
            write_record(stream, sequence_example({name: column[begin:end] for name, column in columns.items()}))
            progress.advance()
    return num_sequences
