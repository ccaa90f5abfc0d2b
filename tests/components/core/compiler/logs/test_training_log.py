"""Tests the log reader against an independent writer, which follows LLVM's description of the format."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.core.compiler.logs.training_log import LogError, read_log

TYPES = {"int64_t": "q", "int32_t": "i", "int8_t": "b", "float": "f", "double": "d"}


def tensor(name: str, kind: str, shape: list[int]) -> dict[str, object]:
    return {"name": name, "port": 0, "shape": shape, "type": kind}


def write_log(features, contexts, score=None, spaced=False) -> bytes:
    """Return a log.

    Args:
        contexts: (name, [(values of each feature, flat), ...], first number); with a score, the last values are its.
    """
    separators = (", ", ": ") if spaced else (",", ":")

    def line(value: object) -> bytes:
        return json.dumps(value, separators=separators).encode() + b"\n"

    header = {"features": features} | ({"score": score} if score else {})
    out = [line(header)]
    for name, records, first in contexts:
        out.append(line({"context": name}))
        for number, values in enumerate(records, first):
            out.append(line({"observation": number}))
            for spec, flat in zip(features, values, strict=False):
                out.append(struct.pack(f"<{len(flat)}{TYPES[spec['type']]}", *flat))
            out.append(b"\n")
            if score:
                out += [line({"outcome": number}), struct.pack(f"<1{TYPES[score['type']]}", *values[-1]), b"\n"]
    return b"".join(out)


@st.composite
def logs(draw):
    values = {
        "int64_t": st.integers(-(2**63), 2**63 - 1),
        "int32_t": st.integers(-(2**31), 2**31 - 1),
        "int8_t": st.integers(-128, 127),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
    }
    shapes = st.lists(st.integers(1, 3), min_size=1, max_size=2)
    kinds = draw(st.lists(st.tuples(st.sampled_from(sorted(values)), shapes), min_size=1, max_size=4))
    features = [tensor(f"f{i}", kind, shape) for i, (kind, shape) in enumerate(kinds)]
    score = draw(st.none() | st.just(tensor("score", "float", [1])))

    def record():
        specs = [*features, score] if score else features
        sizes = [int(np.prod(spec["shape"])) for spec in specs]
        return st.tuples(
            *(st.lists(values[s["type"]], min_size=n, max_size=n) for s, n in zip(specs, sizes, strict=True))
        )

    names = draw(st.lists(st.text(max_size=5), max_size=3, unique=True))
    contexts = [(name, draw(st.lists(record(), max_size=12)), 0) for name in names]
    return features, contexts, score, draw(st.booleans())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(log=logs())
def test_written_log_is_read_back(log, tmp_path: Path) -> None:
    features, contexts, score, spaced = log
    path = tmp_path / "log"
    path.write_bytes(write_log(features, contexts, score, spaced))
    read = read_log(path)
    assert [(spec.name, spec.shape) for spec in read.features] == [(f["name"], tuple(f["shape"])) for f in features]
    assert [context.name for context in read.contexts] == [name for name, _, _ in contexts]
    for context, (_, records, _) in zip(read.contexts, contexts, strict=True):
        assert len(context) == len(records)
        assert (context.outcomes is None) == (score is None)
        for i, spec in enumerate(read.features):
            column = context.columns[spec.name]
            assert column.dtype == spec.dtype and column.shape == (len(records), *spec.shape)
            assert column.flags.c_contiguous
            expected = np.array([r[i] for r in records], spec.dtype).reshape(column.shape)
            np.testing.assert_array_equal(column, expected)
        if score:
            np.testing.assert_array_equal(context.outcomes.ravel(), np.array([r[-1][0] for r in records], "float32"))


INLINING = [tensor("a", "int64_t", [1]), tensor("logits", "float", [1, 2]), tensor("inlining_decision", "int64_t", [1])]


def records_with_separators(n: int) -> list[tuple[list[int], list[float], list[int]]]:
    # Values that contain newlines (0x0A) and the text that separates records must not confuse the reader.
    return [([0x0A0A0A0A0A0A0A0A + i], [i * 0.5, -1.0], [int.from_bytes(b'{"obser', "little")]) for i in range(n)]


@pytest.mark.parametrize("n", [0, 1, 9, 10, 11, 99, 100, 101, 1023, 1024, 1025, 12_345])
def test_observation_numbers_with_more_digits(n: int, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(write_log(INLINING, [("", records_with_separators(n), 0)]))
    (context,) = read_log(path).contexts
    np.testing.assert_array_equal(context.columns["a"].ravel(), 0x0A0A0A0A0A0A0A0A + np.arange(n))
    np.testing.assert_array_equal(context.columns["logits"][:, 0, 0], 0.5 * np.arange(n))
    assert context.columns["logits"].shape == (n, 1, 2)


def test_reentered_context_continues(tmp_path: Path) -> None:
    path = tmp_path / "log"
    records = records_with_separators(30)
    path.write_bytes(write_log(INLINING, [("f", records[:8], 0), ("g", records[:3], 0), ("f", records[8:], 8)]))
    f, g = read_log(path).contexts
    assert (f.name, len(f), g.name, len(g)) == ("f", 30, "g", 3)
    np.testing.assert_array_equal(f.columns["a"].ravel(), 0x0A0A0A0A0A0A0A0A + np.arange(30))


@pytest.mark.parametrize("score", [None, tensor("score", "float", [1])])
def test_error_of_truncated_log_names_file_and_byte(score, tmp_path: Path) -> None:
    records: list[Any] = [(*r, [1.0]) for r in records_with_separators(11)] if score else records_with_separators(11)
    whole = write_log(INLINING, [("one", records, 0), ("two", records[:1], 0)], score)
    path = tmp_path / "cut.log"
    still_valid = 0
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        try:
            log = read_log(path)
        except LogError as error:
            assert error.byte == cut
            assert str(path) in str(error) and f"byte {cut}" in str(error) and "ends inside" in str(error)
        else:
            # Truncated between two records, which the format cannot distinguish from a shorter log.
            assert log.decisions < 12
            still_valid += 1
    # After the header, after each context line and after each record except the last.
    assert still_valid == 1 + 2 + 11


@pytest.mark.parametrize(
    ("corrupt", "message"),
    [
        (lambda log: log.replace(b'{"observation":7}', b'{"observation":8}', 1), "observation 7"),
        (lambda log: log.replace(b'\n{"observation":3}', b'x{"observation":3}', 1), "observation 2 is corrupt"),
        (lambda log: log.replace(b'{"context":""}', b'{"contxt":""}'), "expected the start of a context"),
        (lambda log: log + b"\x00\x01garbage\n", "expected the start of a context"),
        (lambda log: b"\x7fELF" + log, "expected the header"),
        (lambda log: log.replace(b"int64_t", b"complex"), "the header is not"),
        (lambda log: log.replace(b"logits", b"a"), "two features have the same name"),
        (lambda log: b"[1]\n" + log, "expected the header"),
        (lambda log: b"", "the log ends inside the header"),
    ],
)
def test_error_of_corrupt_log_names_the_defect(corrupt, message: str, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(corrupt(write_log(INLINING, [("", records_with_separators(20), 0)])))
    with pytest.raises(LogError, match=message) as caught:
        read_log(path)
    assert str(path) in str(caught.value)


def test_missing_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="training log"):
        read_log(tmp_path / "log")
