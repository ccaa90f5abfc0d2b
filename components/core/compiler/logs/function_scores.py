"""Reads the function scores of a compile without a log, for problems whose measure is a score.

The training clang (FunctionScores.h) writes the file for each forked sample with -mlgo-sample-logs=false: a line of
JSON {"version": 1, "functions": N}; float32 [N], little-endian; N names, each terminated by NUL. It lists the functions
that a log would list (those with at least one decision) in the same order. The file of flip scores (FlipMeasurement.h)
has the same format without names, and its count is called "decisions".
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from components.core.compiler.compile_outputs import read_output
from components.core.compiler.logs.training_log import LogError

Array = npt.NDArray[np.float32]
_VERSION = 1


def read_function_scores(path: Path) -> dict[str, float]:
    """Return the score of each function, by its name as in a log.

    Raises:
        LogError: the compiler wrote no scores, or the file is truncated or corrupt.
    """
    scores, content, end = _read(path, "functions")
    names = content.split(b"\0")
    if len(names) != len(scores) + 1 or names.pop():
        raise LogError(path, end, f"the file does not end after its {len(scores)} functions")
    decoded = (name.decode("utf-8", "surrogateescape") for name in names)
    result = dict(zip(decoded, scores.tolist(), strict=True))
    if len(result) != len(scores):
        raise LogError(path, end - len(content), "the file has a function twice")
    return result


def read_flip_scores(path: Path, flips: int) -> Array:
    """Return the scores of the flips, float32 [flips], NaN for flips that the compile never reached.

    Raises:
        LogError: the compiler wrote no scores, or the file is truncated or corrupt.
    """
    scores, content, end = _read(path, "decisions")
    if len(scores) != flips or content:
        raise LogError(path, end, f"the file does not end after {flips} scores")
    return scores


def _read(path: Path, count: str) -> tuple[Array, bytes, int]:
    """Return the scores (the header field `count` is their number), the bytes after them, and the file's length."""
    try:
        header, _, content = read_output(path).partition(b"\n")
    except FileNotFoundError:
        raise LogError(path, 0, "the compiler wrote no scores") from None
    end = len(header) + 1 + len(content)
    try:
        fields = json.loads(header)
        number = int(fields[count]) if fields["version"] == _VERSION else -1
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        number = -1
    if number < 0:
        raise LogError(path, 0, "this is not a file of scores")
    size = number * np.dtype("<f4").itemsize
    if len(content) < size:
        raise LogError(path, end, f"the file is too short for its {number} {count}")
    return np.frombuffer(content, "<f4", number).astype(np.float32), content[size:], end
