"""Reads LLVM's training log: a header, then per context fixed-size binary records between one-line JSON objects.

The format is described in LLVM's docs/MLGO.rst, "Logging Facility". The records of a context differ in length only by
the number of decimal digits of the observation's index, so all records with the same number of digits are read as one
numpy array, without a Python loop over decisions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from components.core.compiler.compile_outputs import read_output
from components.core.formats.features import FeatureSpec
from components.platform.errors import UserError

Array = npt.NDArray[Any]

_INITIAL_BLOCK_RECORDS = 1024
"""Number of records parsed first; doubled for each further block, so that many short contexts take linear time."""


class LogError(UserError):
    """A training log (or its callsites file) is truncated or corrupt; the message names the file and the byte."""

    def __init__(self, path: Path, byte: int, what: str) -> None:
        problem = f"{path}: byte {byte}: {what}"
        super().__init__(problem, "compile the module again; if it fails again, check the compiler's messages")
        self.args = (path, byte, what)  # so that the error pickles
        self.byte = byte


@dataclass(frozen=True)
class Context:
    """The decisions of one context: a module for the inliner (name ""), a function for register allocation.

    Attributes:
        columns: by feature name, contiguous array [N, *shape] of the feature's dtype.
        outcomes: [N, *shape] of the header's score, None if the log has no scores.
    """

    name: str
    columns: dict[str, Array]
    outcomes: Array | None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0


@dataclass(frozen=True)
class TrainingLog:
    """A parsed training log.

    Attributes:
        features: in the order of the log, the decision last.
        contexts: in order of first appearance, with unique names.
    """

    features: tuple[FeatureSpec, ...]
    contexts: tuple[Context, ...]

    @property
    def decisions(self) -> int:
        """The number of decisions in all contexts."""
        return sum(len(context) for context in self.contexts)


def read_log(path: Path) -> TrainingLog:
    """Read the training log at `path`. LogError if it is missing, truncated or not a training log."""
    try:
        data = read_output(path)
    except FileNotFoundError:
        raise LogError(path, 0, "the compiler wrote no training log") from None
    return _Parser(path, data).parse()


class _Parser:
    def __init__(self, path: Path, data: bytes) -> None:
        self.path = path
        self.data = data
        self.at = 0  # the next byte to read

    def error(self, what: str, byte: int | None = None) -> LogError:
        """Return the error at `byte`, by default the next byte to read."""
        return LogError(self.path, self.at if byte is None else byte, what)

    def parse(self) -> TrainingLog:
        """Return the whole log."""
        specs, score = read_header(self.path, self.json_line("the header"))
        record_bytes = record_dtype(specs).itemsize
        score_bytes = record_dtype([score]).itemsize if score else None
        # If a context is left and entered again, its numbering continues, so its blocks belong together.
        blocks: dict[str, list[tuple[Array, Array | None]]] = {}
        while self.at < len(self.data):
            line = self.json_line("the start of a context")
            name = line.get("context")
            if not isinstance(name, str):
                raise self.error(f"expected the start of a context, found {line}")
            parts = blocks.setdefault(name, [])
            self.observations(parts, record_bytes, score_bytes)
        contexts = tuple(_context(name, parts, specs, score) for name, parts in blocks.items())
        return TrainingLog(tuple(specs), contexts)

    def json_line(self, what: str) -> dict[str, Any]:
        end = self.data.find(b"\n", self.at)
        if end < 0:
            raise self.error(f"the log ends inside {what}", len(self.data))
        try:
            line = json.loads(self.data[self.at : end])
        except (ValueError, RecursionError):
            line = None
        if not isinstance(line, dict):
            raise self.error(f"expected {what}, found {self.data[self.at : min(end, self.at + 40)]!r}")
        self.at = end + 1
        return line

    def observations(self, parts: list[tuple[Array, Array | None]], record_bytes: int, score_bytes: int | None) -> None:
        """Append the following observations, up to the next context or the end, to `parts`."""
        number = sum(len(values) for values, _ in parts)
        block = _INITIAL_BLOCK_RECORDS
        while self.data.startswith(b'{"observation"', self.at):
            digits = len(str(number))
            first_line = self.data[self.at : self.data.find(b"\n", self.at) + 1]
            if first_line and not _is_observation_line(first_line, number):
                raise self.error(f"expected observation {number}, found {first_line[:40]!r}")
            layout = _observation_dtype(len(first_line), record_bytes, score_bytes)
            room = (len(self.data) - self.at) // layout.itemsize
            if not first_line or room == 0:
                what = f"the log ends inside observation {number}, which starts at byte {self.at}"
                raise self.error(what, len(self.data))
            rows = np.frombuffer(self.data, layout, min(room, block, 10**digits - number), self.at)
            valid = _count_well_formed(rows, self.data, self.at, number, digits)
            if valid == 0:
                raise self.error(f"observation {number} is corrupt")
            rows = rows[:valid]
            parts.append((rows["values"], rows["score"] if score_bytes else None))
            self.at += valid * layout.itemsize
            number += valid
            block *= 2


def read_header(path: Path, header: Mapping[str, Any] | None) -> tuple[list[FeatureSpec], FeatureSpec | None]:
    """Return the tensors of each decision and that of the outcomes, None if the log has none.

    Args:
        header: the first line of the log; None if it is empty.

    Raises:
        LogError: it is not the header of a training log.
    """
    try:
        if header is None:
            raise ValueError("the file is empty")
        specs = [read_spec(tensor) for tensor in header["features"]]
        score = read_spec(header["score"]) if "score" in header else None
        if len({spec.name for spec in specs}) != len(specs):
            raise ValueError("two features have the same name")
        record_dtype([*specs, score] if score else specs)  # ValueError: too many dimensions or bytes
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise LogError(path, 0, f"the header is not that of a training log: {error!r}") from None
    return specs, score


def read_spec(tensor: dict[str, Any]) -> FeatureSpec:
    """Return a tensor of a log's header. KeyError, TypeError or ValueError if it is not valid."""
    spec = FeatureSpec.from_json(tensor)
    if any(extent <= 0 for extent in spec.shape):
        raise ValueError(f"feature {spec.name} has the invalid shape {list(spec.shape)}")
    return spec


def record_dtype(specs: Sequence[FeatureSpec]) -> np.dtype[Any]:
    """Return the dtype of all features, packed; fields are called "0", "1", ... so that any feature name is valid."""
    return np.dtype([(str(i), spec.dtype, spec.shape) for i, spec in enumerate(specs)])


def _observation_dtype(first_line_bytes: int, record_bytes: int, score_bytes: int | None) -> np.dtype[Any]:
    """Return the dtype of a whole observation, including its text lines.

    Fields: first_line (a text line), values, end (a new line) and, with a score, outcome (a text line), score,
    score_end. The values stay raw bytes here: numpy copies raw bytes at once, but structured values field by field.
    """
    fields: list[tuple[str, str]] = [
        ("first_line", f"V{first_line_bytes}"),
        ("values", f"V{record_bytes}"),
        ("end", "u1"),
    ]
    if score_bytes:
        # The outcome's line repeats the number with the same spelling under another name.
        outcome_bytes = first_line_bytes - len("observation") + len("outcome")
        fields += [("outcome", f"V{outcome_bytes}"), ("score", f"V{score_bytes}"), ("score_end", "u1")]
    return np.dtype(fields)


def _is_observation_line(line: bytes, number: int) -> bool:
    try:
        return bool(json.loads(line) == {"observation": number})
    except (ValueError, RecursionError):
        return False


def _count_well_formed(rows: Array, data: bytes, at: int, number: int, digits: int) -> int:
    """Return how many leading `rows` have the text lines of observations number, number + 1, ..."""
    first_line = data[at : at + rows.dtype["first_line"].itemsize]
    valid = _matches_text(rows["first_line"], first_line, number, digits) & (rows["end"] == 0x0A)
    if "outcome" in (rows.dtype.names or ()):
        outcome = first_line.replace(b"observation", b"outcome")
        valid &= _matches_text(rows["outcome"], outcome, number, digits) & (rows["score_end"] == 0x0A)
    wrong = np.flatnonzero(~valid)
    return int(wrong[0]) if len(wrong) else len(rows)


def _matches_text(lines: Array, first: bytes, number: int, digits: int) -> npt.NDArray[np.bool_]:
    """Return whether lines[i] is `first` with number replaced by number + i; all numbers have `digits` digits."""
    begin = first.index(b":")
    while not first[begin : begin + 1].isdigit():
        begin += 1
    numbers = np.arange(number, number + len(lines))
    expected = np.empty((len(lines), len(first)), np.uint8)
    expected[:] = np.frombuffer(first, np.uint8)
    for exponent in range(digits):
        expected[:, begin + digits - 1 - exponent] = numbers // 10**exponent % 10 + ord("0")
    characters = np.ascontiguousarray(lines).view(np.uint8).reshape(expected.shape)
    return np.asarray((characters == expected).all(axis=1))


def _context(
    name: str, parts: list[tuple[Array, Array | None]], specs: list[FeatureSpec], score: FeatureSpec | None
) -> Context:
    """Concatenate the blocks of one context and convert its records to columns."""
    values = _concatenate([values for values, _ in parts], record_dtype(specs))
    columns = columns_of(values, specs)
    if score is None:
        return Context(name, columns, None)
    outcomes = _concatenate([outcome for _, outcome in parts if outcome is not None], record_dtype([score]))
    return Context(name, columns, np.ascontiguousarray(outcomes["0"]))


def columns_of(records: Array, specs: Sequence[FeatureSpec]) -> dict[str, Array]:
    """Return feature name -> contiguous array [N, *shape] of N records of `record_dtype`."""
    return {spec.name: np.ascontiguousarray(records[str(i)]) for i, spec in enumerate(specs)}


def _concatenate(parts: list[Array], dtype: np.dtype[Any]) -> Array:
    return np.concatenate(parts).view(dtype) if parts else np.empty(0, dtype)
