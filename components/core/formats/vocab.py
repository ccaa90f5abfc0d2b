"""A vocab on disk: the quantiles of each feature that is normalized by its distribution, in `<feature>.buckets`.

The files are text, one number per line, nondecreasing: the format that google/ml-compiler-opt reads. vocab.json records
their origin: {"version", "problem", "features": [names], "quantiles", "decisions", "trace": the trace's digest}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from components.platform.errors import UserError
from components.platform.storage.input_files import MissingFile, expect_shape, read_bytes, read_document
from components.platform.storage.manifest import require_artifact

DESCRIPTION = "vocab.json"
SUFFIX = ".buckets"
QUANTILES = 1000
_VERSION = 1
_REMEDY = "make it again with: mlgo vocab --trace DIR --output DIR"


def write_vocab(
    directory: Path, buckets: Mapping[str, npt.NDArray[np.float64]], origin: Mapping[str, object] | None = None
) -> None:
    """Write each feature's quantiles, float64 [1000] nondecreasing, and vocab.json with the keys of `origin`."""
    for name, values in buckets.items():
        lines = "".join(f"{_shortest_decimal(value)}\n" for value in values.tolist())
        (directory / f"{name}{SUFFIX}").write_text(lines, encoding="ascii")
    document = {"version": _VERSION, "features": list(buckets), "quantiles": QUANTILES, **(origin or {})}
    (directory / DESCRIPTION).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


class _Description(Struct):
    """vocab.json, what reading the vocab needs of it."""

    features: tuple[str, ...]


def load_vocab(directory: Path) -> dict[str, npt.NDArray[np.float64]]:
    """Return each feature's quantiles, float64 [1000] nondecreasing, in the order in which they were written.

    Raises:
        UserError: `directory` is not a complete vocab artifact, or a file of it does not hold such numbers.
    """
    require_artifact(directory, "vocab")
    path = directory / DESCRIPTION
    try:
        description = read_document(path, _Description, "a vocab description", _REMEDY, _VERSION)
    except MissingFile:
        raise UserError(f"{directory} is not a vocab: there is no {DESCRIPTION}", _REMEDY) from None
    return {name: read_buckets(directory / f"{name}{SUFFIX}") for name in description.features}


def read_buckets(path: Path) -> npt.NDArray[np.float64]:
    """Read and check the quantiles in one file. UserError names the file if they are invalid."""
    try:
        content = read_bytes(path, _REMEDY)
    except MissingFile:
        raise UserError(f"{path} is missing", _REMEDY) from None
    with expect_shape(path, "a list with one number per line", _REMEDY):
        values = np.array(content.decode("ascii").split(), np.float64)
    if values.shape != (QUANTILES,):
        raise UserError(f"{path} has {len(values)} numbers, expected {QUANTILES}", _REMEDY)
    if not np.isfinite(values).all() or (np.diff(values) < 0).any():
        raise UserError(f"{path} has numbers that are not finite or not nondecreasing", _REMEDY)
    return values


def _shortest_decimal(value: float) -> str:
    """Return the shortest decimal that reads back as the same float64; integers without a point."""
    return repr(value).removesuffix(".0")
