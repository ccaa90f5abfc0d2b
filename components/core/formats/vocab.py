"""A vocab on disk: the quantiles of each feature that is normalized by its distribution, in `<feature>.buckets`.

The files are text, one number per line, nondecreasing: the format that google/ml-compiler-opt reads and writes
(compiler_opt/tools/generate_vocab.py). vocab.json records their origin: {"version", "problem", "features": [names],
"quantiles", "decisions", "trace": the trace's digest}. A directory without it is a vocab of ml-compiler-opt.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from components.platform.errors import UserError
from components.platform.storage.input_files import MissingFile, expect_shape, read_bytes, read_document
from components.platform.storage.manifest import MANIFEST, digest, manifest_digest, require_artifact, scan_directory

DESCRIPTION = "vocab.json"
SUFFIX = ".buckets"
QUANTILES = 1000
_VERSION = 1
_NAME = re.compile(r"\w+")
_REMEDY = "make it again with: mlgo vocab --trace DIR --output DIR"


def write_vocab(
    directory: Path, buckets: Mapping[str, npt.NDArray[np.float64]], origin: Mapping[str, object] | None = None
) -> None:
    """Write each feature's quantiles, float64 [1000] nondecreasing, and vocab.json with the keys of `origin`."""
    for name, values in buckets.items():
        if not _NAME.fullmatch(name):  # it becomes the name of a file
            raise UserError(f"the feature {name!r} cannot be the name of a file", "trace the corpus again")
        # The shortest decimals that read back as the same float64; integers without a point.
        lines = "".join(f"{value!r}".removesuffix(".0") + "\n" for value in values.tolist())
        (directory / f"{name}{SUFFIX}").write_text(lines, encoding="ascii")
    document = {"version": _VERSION, "features": list(buckets), "quantiles": QUANTILES, **(origin or {})}
    (directory / DESCRIPTION).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


class _Description(Struct):
    """vocab.json, what reading the vocab needs of it."""

    features: tuple[str, ...]


def is_foreign(directory: Path) -> bool:
    """Return whether ml-compiler-opt made a vocab: files of quantiles, and nothing that says where they are from."""
    ours = any((directory / name).exists() for name in (MANIFEST, DESCRIPTION))
    return not ours and bool(bucket_files(directory))


def bucket_files(directory: Path) -> dict[str, Path]:
    """Return the files of quantiles in a directory by the name of their feature, sorted."""
    return {path.name.removesuffix(SUFFIX): path for path in sorted(directory.glob(f"*{SUFFIX}"))}


def vocab_digest(directory: Path) -> str:
    """Return the content digest of a vocab; of one of ml-compiler-opt that of its files of quantiles."""
    if is_foreign(directory):
        return manifest_digest(scan_directory(directory, bucket_files(directory).values()))
    return digest(directory)


def load_vocab(directory: Path) -> dict[str, npt.NDArray[np.float64]]:
    """Return each feature's quantiles, float64 [1000] nondecreasing, in the order in which they were written.

    ml-compiler-opt's may be of another number (its published ones are 999 and 9,999): then 1000 of their ranks.

    Raises:
        UserError: `directory` is not a complete vocab artifact, or a file of it does not hold such numbers.
    """
    if is_foreign(directory):
        return {name: quantiles(read_numbers(path)) for name, path in bucket_files(directory).items()}
    require_artifact(directory, "vocab")
    path = directory / DESCRIPTION
    try:
        description = read_document(path, _Description, "a vocab description", _REMEDY, _VERSION)
    except MissingFile:
        raise UserError(f"{directory} is not a vocab: there is no {DESCRIPTION}", _REMEDY) from None
    return {name: read_buckets(directory / f"{name}{SUFFIX}") for name in description.features}


def quantiles(values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return the 1000 quantiles of all elements of `values` (any shape, at least one), float64 nondecreasing.

    The k-th, k = 0 ... 999, is the value of rank ceil(k * (N - 1) / 999) among the N sorted values, counted from 0: the
    first is the minimum, the last the maximum, and each is a value that really occurred (numpy's method "higher", but
    with ranks in integers). So the quantiles of an integer feature are integers, which for a comparison with integers
    is as good as interpolation: what is at least b is at least the next integer above b. Equal quantiles repeat, so
    that the number of quantiles that a value reaches, over 1000, estimates the distribution function.
    """
    return quantiles_of_counts(*np.unique(values, return_counts=True))


def quantiles_of_counts(values: npt.NDArray[Any], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the same quantiles of values that occur several times.

    Args:
        values: [D], distinct and increasing, at least one.
        counts: int64 [D], how often each occurs.
    """
    ends = np.cumsum(counts)
    steps = QUANTILES - 1
    ranks = (np.arange(QUANTILES) * (int(ends[-1]) - 1) + steps - 1) // steps
    boundaries: npt.NDArray[np.float64] = values[np.searchsorted(ends, ranks, side="right")].astype(np.float64)
    return boundaries


def read_buckets(path: Path) -> npt.NDArray[np.float64]:
    """Read and check the 1000 quantiles in one file. UserError names the file if they are invalid."""
    values = read_numbers(path)
    if len(values) != QUANTILES:
        raise UserError(f"{path} has {len(values)} numbers, expected {QUANTILES}", _REMEDY)
    return values


def read_numbers(path: Path) -> npt.NDArray[np.float64]:
    """Return the quantiles in one file, float64 [N] nondecreasing, N > 0. UserError names the file if it has others."""
    try:
        content = read_bytes(path, _REMEDY)
    except MissingFile:
        raise UserError(f"{path} is missing", _REMEDY) from None
    with expect_shape(path, "a list with one number per line", _REMEDY):
        values = np.array(content.decode("ascii").split(), np.float64)
    if not len(values):
        raise UserError(f"{path} has no numbers", _REMEDY)
    if not np.isfinite(values).all() or (np.diff(values) < 0).any():
        raise UserError(f"{path} has numbers that are not finite or not nondecreasing", _REMEDY)
    return values
