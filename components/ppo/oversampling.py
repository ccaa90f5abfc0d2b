"""Modules that a training is to look at more often, because the policy before made them larger."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path, PurePosixPath

from components.core.storage.input_files import expect_shape, read_json


def read_oversampling(path: Path) -> tuple[str, ...]:
    """Module names from a JSON list, or from the list "regressed" of an object. UserError if there is neither."""
    remedy = "pass a JSON list, or mlgo retrain's state"
    document = read_json(path, remedy)
    with expect_shape(path, "a list of modules", remedy):
        names = document["regressed"] if isinstance(document, dict) else document
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("no list of names")
    return tuple(names)


def oversampled(names: Collection[str], trained: Collection[str]) -> set[str]:
    """Those of the `trained` modules that `names` means: the named ones, and for a named one that is not trained on
    (it was held out, where its growth was seen) the modules of its directory."""
    folders = {str(PurePosixPath(name).parent) for name in names if name not in trained} - {"."}
    return {name for name in trained if name in names or str(PurePosixPath(name).parent) in folders}
