"""A vocab on disk: for each feature that is normalised by its distribution, its quantiles in `<feature>.buckets`.

Text, one number a line, nondecreasing: the form that google/ml-compiler-opt reads. Beside them vocab.json says where
they come from: {"version", "problem", "features": [names], "quantiles", "decisions", "trace": the trace's digest}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from components.console import UserError
from components.storage.input_files import MissingFile, expect_shape, read_bytes, read_json
from components.storage.manifest import require_artifact

DESCRIPTION = "vocab.json"
SUFFIX = ".buckets"
QUANTILES = 1000
_VERSION = 1
_REMEDY = "make it again with: python -m components.vocab --trace DIR --output DIR"


def write_vocab(
    directory: Path, buckets: Mapping[str, npt.NDArray[np.float64]], origin: Mapping[str, object] | None = None
) -> None:
    """Writes each feature's quantiles, float64 [1000] nondecreasing, and vocab.json with `origin` in it."""
    for name, values in buckets.items():
        lines = "".join(f"{_shortest(value)}\n" for value in values.tolist())
        (directory / f"{name}{SUFFIX}").write_text(lines, encoding="ascii")
    document = {"version": _VERSION, "features": list(buckets), "quantiles": QUANTILES, **(origin or {})}
    (directory / DESCRIPTION).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def load_vocab(directory: Path) -> dict[str, npt.NDArray[np.float64]]:
    """Each feature's quantiles, float64 [1000] nondecreasing, in the order in which they were written.

    Raises UserError if `directory` is no whole vocab artifact, or a file of it does not hold such numbers.
    """
    require_artifact(directory, "vocab")
    path = directory / DESCRIPTION
    try:
        document = read_json(path, _REMEDY)
    except MissingFile:
        raise UserError(f"{directory} is not a vocab: there is no {DESCRIPTION}", _REMEDY) from None
    with expect_shape(path, "a vocab description", _REMEDY):
        if document["version"] != _VERSION:
            raise UserError(f"{path} has version {document['version']!r:.20}, this program reads {_VERSION}", _REMEDY)
        names = [str(name) for name in document["features"]]
    return {name: read_buckets(directory / f"{name}{SUFFIX}") for name in names}


def read_buckets(path: Path) -> npt.NDArray[np.float64]:
    """The quantiles in one file, checked. UserError naming the file if they are not what they should be."""
    try:
        content = read_bytes(path, _REMEDY)
    except MissingFile:
        raise UserError(f"{path} is missing", _REMEDY) from None
    with expect_shape(path, "a list of a number a line", _REMEDY):
        values = np.array(content.decode("ascii").split(), np.float64)
    if values.shape != (QUANTILES,):
        raise UserError(f"{path} has {len(values)} numbers, expected {QUANTILES}", _REMEDY)
    if not np.isfinite(values).all() or (np.diff(values) < 0).any():
        raise UserError(f"{path} holds numbers that are not finite or not nondecreasing", _REMEDY)
    return values


def _shortest(value: float) -> str:
    """The shortest decimal that reads back as the same float64; whole numbers without a point."""
    return repr(value).removesuffix(".0")
