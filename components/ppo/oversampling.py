"""Modules that a training samples more often, because the previous policy regressed them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import Struct

from components.platform.storage.input_files import read_json, typed


class _State(Struct):
    """The state of `mlgo retrain`."""

    regressed: tuple[str, ...]


_MODULES: Any = _State | tuple[str, ...]


def read_oversampling(path: Path) -> tuple[str, ...]:
    """Return the module names in a JSON list, or in an object's list "regressed". UserError for other documents."""
    remedy = "pass a JSON list, or mlgo retrain's state"
    read: _State | tuple[str, ...] = typed(read_json(path, remedy), _MODULES, path, "a list of modules", remedy)
    return read.regressed if isinstance(read, _State) else read


def oversampled(names: Collection[str], trained: Collection[str]) -> set[str]:
    """Return the training modules that `names` selects.

    A module that is not trained on, because it was held out when it regressed, selects the modules of its directory.
    """
    folders = {str(PurePosixPath(name).parent) for name in names if name not in trained} - {"."}
    return {name for name in trained if name in names or str(PurePosixPath(name).parent) in folders}
