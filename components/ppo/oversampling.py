"""Modules that a training samples more often, because the previous policy regressed them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path, PurePosixPath

from components.core.storage.input_files import expect_shape, read_json


def read_oversampling(path: Path) -> tuple[str, ...]:
    """Return the module names in a JSON list, or in an object's list "regressed". UserError for other documents."""
    remedy = "pass a JSON list, or mlgo retrain's state"
    document = read_json(path, remedy)
    with expect_shape(path, "a list of modules", remedy):
        names = document["regressed"] if isinstance(document, dict) else document
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError("no list of names")
    return tuple(names)


def oversampled(names: Collection[str], trained: Collection[str]) -> set[str]:
    """Return the training modules that `names` selects.

    A module that is not trained on, because it was held out when it regressed, selects the modules of its directory.
    """
    folders = {str(PurePosixPath(name).parent) for name in names if name not in trained} - {"."}
    return {name for name in trained if name in names or str(PurePosixPath(name).parent) in folders}
