"""Scores of functions that a compile without a log writes, for problems that are judged by them.

The training clang (FunctionScores.h) writes the file for each sample of a fork with -mlgo-sample-logs=false: a line of
JSON {"version": 1, "functions": N}; float32 [N], little-endian; N names, each ended by NUL. It has the functions that a
log would have, those in which something was decided, in the same order. Scores of flips (FlipMeasurement.h) are the
same without names, their number is called "decisions".
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from components.compiler.training_log import LogError

Array = npt.NDArray[np.float32]
_VERSION = 1


def read_function_scores(path: Path) -> dict[str, float]:
    """Return the score of each function, by the name that a log has for it.

    Raises:
        LogError: the compiler wrote no scores, or the file is truncated or corrupt.
    """
    scores, content, end = _read(path, "functions")
    names = content.split(b"\0")
    if len(names) != len(scores) + 1 or names.pop():
        raise LogError(path, end, f"the file does not end behind its {len(scores)} functions")
    decoded = (name.decode("utf-8", "surrogateescape") for name in names)
    result = dict(zip(decoded, scores.tolist(), strict=True))
    if len(result) != len(scores):
        raise LogError(path, end - len(content), "a function is in it twice")
    return result


def read_flip_scores(path: Path, flips: int) -> Array:
    """Return the scores of `flips` flips, float32 [flips], NaN for those that the compile never came to.

    Raises:
        LogError: as read_function_scores.
    """
    scores, content, end = _read(path, "decisions")
    if len(scores) != flips or content:
        raise LogError(path, end, f"the file does not end behind {flips} scores")
    return scores


def _read(path: Path, count: str) -> tuple[Array, bytes, int]:
    """Return the scores, as many as the header has as `count`, what follows them, and the length of the file."""
    try:
        header, _, content = path.read_bytes().partition(b"\n")
    except FileNotFoundError:
        raise LogError(path, 0, "the compiler wrote no scores") from None
    end = len(header) + 1 + len(content)
    try:
        fields = json.loads(header)
        number = int(fields[count]) if fields["version"] == _VERSION else -1
    except (ValueError, KeyError, TypeError):
        number = -1
    if number < 0:
        raise LogError(path, 0, "this is not a file of scores")
    size = number * np.dtype("<f4").itemsize
    if len(content) < size:
        raise LogError(path, end, f"the file does not end behind its {number} {count}")
    return np.frombuffer(content, "<f4", number).astype(np.float32), content[size:], end
