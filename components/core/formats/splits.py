"""splits.json: the modules for training, for choosing the best checkpoint, and for reporting only.

{"version": 1, "seed": 0, "train": [module names], "validation": [module names], "heldout": [module names],
 "heldout_projects": [project names]}
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from components.platform.errors import UserError
from components.platform.storage.input_files import MissingFile, read_document
from components.platform.storage.output_files import replace_text

FILE = "splits.json"
SPLITS = ("train", "validation", "heldout")
_VERSION = 1


@dataclass(frozen=True)
class Splits:
    """A partition of a corpus's modules.

    The three parts are disjoint and cover the corpus. Versions of a source file are in the same part. Every module
    of a project in `heldout_projects` is in `heldout`; the other held-out modules are unseen modules of known projects.
    Report the two kinds separately.
    """

    seed: int
    train: tuple[str, ...]
    validation: tuple[str, ...]
    heldout: tuple[str, ...]
    heldout_projects: tuple[str, ...] = ()

    def part(self, which: str) -> tuple[str, ...]:
        return {"train": self.train, "validation": self.validation, "heldout": self.heldout}[which]

    def without(self, modules: set[str]) -> Splits:
        """Return the same split without these modules."""
        parts = {which: tuple(name for name in self.part(which) if name not in modules) for which in SPLITS}
        return replace(self, **parts)  # type: ignore[arg-type]


def write_splits(directory: Path, splits: Splits) -> None:
    """Write splits.json in `directory`, replacing one atomically. UserError if a directory has that name."""
    replace_text(directory / FILE, json.dumps({"version": _VERSION, **asdict(splits)}, indent=1) + "\n")


def read_splits(directory: Path, modules: Sequence[str]) -> Splits:
    """Read splits.json of the corpus in `directory`, whose modules are `modules`.

    Raises:
        UserError: it is missing or corrupt, or does not partition exactly these modules.
    """
    path = directory / FILE
    remedy = f"write it with mlgo corpus split --corpus {directory}"
    try:
        splits = read_document(path, Splits, "what the corpus step writes", remedy, _VERSION)
    except MissingFile:
        problem = f"the corpus in {directory} has no {FILE}, which defines the held-out modules"
        raise UserError(problem, remedy) from None
    listed = [name for which in SPLITS for name in splits.part(which)]
    if len(set(listed)) != len(listed):
        twice = next(name for name in listed if listed.count(name) > 1)
        raise UserError(f"{path} has the module {twice} in two parts", remedy)
    if set(listed) != set(modules):
        odd = sorted(set(listed) ^ set(modules))[0]
        raise UserError(f"{path} does not match the corpus: {odd} is in only one of the two", remedy)
    return splits
