"""Reads a training log record by record: memory does not grow with the log.

The logs of `mlgo trace` are read at once by core/compiler/logs/training_log.py, which is faster. Here are logs of any
size, also of LLVM's own clang, such as of a whole program. The format is described in LLVM's docs/MLGO.rst.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from components.core.compiler.logs.training_log import LogError, read_header, record_dtype
from components.core.formats.features import FeatureSpec
from components.platform.console.escape import escape_lines
from components.platform.errors import UserError

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Record:
    """One decision.

    Attributes:
        context: function for register allocation; "" or "default" for inlining.
        number: of the observation, which counts in its context.
        values: name -> [*shape].
        outcome: [*shape], None if the log has none for this decision.
    """

    context: str
    number: int
    values: dict[str, Array]
    outcome: Array | None


class LogReader:
    """A log whose header was read.

    Attributes:
        features: tensors of each decision, in the order of the log.
        score: tensor of the outcomes, None if the log has none.
    """

    def __init__(self, path: Path, stream: BinaryIO) -> None:
        self._path = path
        self._stream = stream
        self._at = 0
        self.features, self.score = read_header(path, self._json_line())

    def records(self) -> Iterator[Record]:
        """Yield the decisions. LogError if the log is truncated or corrupt."""
        dtype = record_dtype(self.features)
        score = record_dtype([self.score]) if self.score else None
        context: str | None = None
        pending: Record | None = None
        while (line := self._json_line()) is not None:
            if score is not None and pending is not None and line.get("outcome") == pending.number:
                yield Record(pending.context, pending.number, pending.values, self._tensors(score)["0"][0])
                pending = None
                continue
            if pending is not None:
                yield pending
                pending = None
            if isinstance(line.get("context"), str):
                context = line["context"]
            elif isinstance(line.get("observation"), int) and context is not None:
                row = self._tensors(dtype)
                values = {spec.name: row[str(i)][0] for i, spec in enumerate(self.features)}
                pending = Record(context, line["observation"], values, None)
            else:
                raise LogError(self._path, self._at, f"expected a context or an observation, found {line}")
        if pending is not None:
            yield pending

    def _json_line(self) -> dict[str, Any] | None:
        """Return the next line, None at the end of the file."""
        begin = self._at
        line = self._stream.readline()
        self._at += len(line)
        if not line:
            return None
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):  # the latter of a line that is nested deeply
            document = None
        if not line.endswith(b"\n") or not isinstance(document, dict):
            raise LogError(self._path, begin, f"expected a line of JSON, found {line[:40]!r}")
        return document

    def _tensors(self, dtype: np.dtype[Any]) -> Array:
        """Return the next tensors, [1], and read the new line after them."""
        data = self._stream.read(dtype.itemsize + 1)
        if len(data) != dtype.itemsize + 1 or not data.endswith(b"\n"):
            raise LogError(self._path, self._at, "the log ends inside an observation, or an observation is corrupt")
        self._at += len(data)
        return np.frombuffer(data, dtype, 1)


@contextmanager
def open_log(path: Path) -> Iterator[LogReader]:
    """Read the header of a log. LogError if it is none; UserError if there is no such file."""
    if path.is_dir():
        raise UserError(
            f"{path} is a directory, not a training log",
            "pass the file of -training-log; the files trace-*.parquet of a trace are read by any reader of Parquet",
        )
    try:
        stream = path.open("rb")
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}", "pass the file of -training-log") from None
    with stream:
        yield LogReader(path, stream)


def format_record(record: Record, features: Sequence[FeatureSpec], with_context: bool) -> str:
    """Return a decision as lines of text; its context in a line before if `with_context`."""
    width = max((len(spec.name) for spec in features), default=0)
    lines = [f"context: {escape_lines(record.context)}"] if with_context else []
    lines.append(f"observation: {record.number}")
    lines += [f"  {spec.name:<{width}}  {_values(record.values[spec.name])}" for spec in features]
    if record.outcome is not None:
        lines.append(f"outcome: {_values(record.outcome)}")
    return "\n".join(lines)


def _values(values: Any) -> str:
    return " ".join(str(value) for value in np.asarray(values).ravel().tolist())
