"""Reads the scalars of a TensorBoard event file without TensorFlow.

Formats: TFRecord framing (u64 length, u32 masked crc32c of the length, data, u32 masked crc32c of the data, all little
endian) around protocol buffers; field numbers from tensorflow/core/util/event.proto, framework/summary.proto and
framework/tensor.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import google_crc32c

from components.platform.storage.input_files import read_bytes

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DT_FLOAT, _DT_DOUBLE = 1, 2


@dataclass(frozen=True)
class Scalar:
    """One point of a curve. `wall_time_s` is seconds since 1970."""

    tag: str
    step: int
    wall_time_s: float
    value: float


@dataclass(frozen=True)
class EventFile:
    """Events of one process. `start_s` is its start (seconds since 1970), `scalars` are in file order."""

    start_s: float
    scalars: tuple[Scalar, ...]


def read_event_file(path: Path) -> EventFile:
    """Read every scalar of an event file; other values (histograms, images) are skipped.

    A file of a killed or running training may end within a record; that record is ignored.
    """
    start_s = None
    scalars: list[Scalar] = []
    for record in _records(read_bytes(path)):
        wall_time_s, step, summaries = 0.0, 0, []
        for number, value in _fields(record):
            if number == 1 and isinstance(value, bytes):
                wall_time_s = struct.unpack("<d", value)[0]
            elif number == 2 and isinstance(value, int):
                step = value
            elif number == 5 and isinstance(value, bytes):
                summaries.append(value)
        if start_s is None:
            start_s = wall_time_s  # the writer's first event is the format's version, written when the file is opened
        for summary in summaries:
            for number, value in _fields(summary):
                scalar = _scalar(value) if number == 1 and isinstance(value, bytes) else None
                if scalar is not None:
                    scalars.append(Scalar(scalar[0], step, wall_time_s, scalar[1]))
    return EventFile(start_s or 0.0, tuple(scalars))


def _records(data: bytes) -> Iterator[bytes]:
    offset = 0
    while offset + 12 <= len(data):
        length = int.from_bytes(data[offset : offset + 8], "little")
        start, end = offset + 12, offset + 12 + length
        if end + 4 > len(data):
            return  # incomplete record: the writer was stopped
        if not (_crc_matches(data, offset, offset + 8) and _crc_matches(data, start, end)):
            return  # records after a damaged one cannot be found
        yield data[start:end]
        offset = end + 4


def _crc_matches(data: bytes, start: int, end: int) -> bool:
    crc = google_crc32c.value(data[start:end])
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF  # TFRecord's masking
    return masked == int.from_bytes(data[end : end + 4], "little")


def _scalar(value: bytes) -> tuple[str, float] | None:
    """Return (tag, number) of a scalar Summary.Value: simple_value (field 2), or a tensor (field 8) of one float."""
    tag, number = "", None
    for field, content in _fields(value):
        if not isinstance(content, bytes):
            continue
        if field == 1:
            tag = content.decode("utf-8", "replace")
        elif field == 2 and len(content) == 4:
            number = struct.unpack("<f", content)[0]
        elif field == 8:
            number = _float_scalar(content)
    return None if number is None else (tag, number)


def _float_scalar(tensor: bytes) -> float | None:
    """Return the element of a TensorProto with one float or double; None for any other tensor."""
    dtype, packed = 0, b""
    for field, content in _fields(tensor):
        if field == 1 and isinstance(content, int):
            dtype = content
        elif field in (4, 5, 6) and isinstance(content, bytes):  # tensor_content, float_val, double_val
            packed = content
    layout = {_DT_FLOAT: "<f", _DT_DOUBLE: "<d"}.get(dtype)
    if layout is None or len(packed) != struct.calcsize(layout):
        return None
    return float(struct.unpack(layout, packed)[0])


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, varint value or raw bytes) of each field of a protocol-buffer message."""
    offset = 0
    while offset < len(message):
        key, offset = _varint(message, offset)
        number, wire = key >> 3, key & 7
        if wire == _VARINT:
            value, offset = _varint(message, offset)
            yield number, value
            continue
        if wire == _BYTES:
            length, offset = _varint(message, offset)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            return  # a group, which TensorBoard's messages do not use
        yield number, message[offset : offset + length]
        offset += length


def _varint(message: bytes, offset: int) -> tuple[int, int]:
    value = shift = 0
    while offset < len(message):
        byte = message[offset]
        value |= (byte & 0x7F) << shift
        shift += 7
        offset += 1
        if byte < 0x80:
            break
    return value, offset
