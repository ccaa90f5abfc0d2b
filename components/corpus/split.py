"""Split of a corpus into training, validation and held-out parts, by the content of its modules."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from components.core.console import UserError
from components.core.formats.corpus import Module
from components.core.formats.splits import Splits

MIN_CONTENTS = 3
"""Distinct contents from which on each part of a split has one."""


@dataclass(frozen=True)
class SplitConfig:
    """Options of the split of a corpus.

    The fractions are of the distinct bitcode contents outside the held-out projects. Each is in [0, 1), and their sum
    is below 1.

    Attributes:
        validation_fraction: fraction that selects the best checkpoint.
        heldout_fraction: fraction that is held out.
        heldout_projects: projects whose modules are all held out.
        seed: of the order of the contents.
    """

    validation_fraction: float = 0.1
    heldout_fraction: float = 0.15
    heldout_projects: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("validation_fraction", "heldout_fraction"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}, it must be at least 0 and below 1", "correct it")
        if self.validation_fraction + self.heldout_fraction >= 1:
            raise UserError("the validation and held-out fractions leave no module to train on", "reduce them")


def split_modules(modules: Sequence[Module], config: SplitConfig) -> Splits:
    """Assign every module to a part.

    Contents are ordered by the SHA-256 of seed and bitcode, so that the result depends neither on names nor on the
    order of the corpus. The first contents are held out, the next ones are for validation, the rest for training. Each
    part with a fraction above 0 gets at least one content if there are at least MIN_CONTENTS. Modules of held-out
    projects, and modules with the same content as one of them, are held out.

    Raises:
        UserError: the corpus does not have a held-out project, or no module is left to train on.
    """
    projects = sorted({module.project for module in modules})
    for project in config.heldout_projects:
        if project not in projects:
            known = f"choose from: {', '.join(projects[:20])}"
            raise UserError(f"the corpus has no project {project!r} to hold out", known)
    contents = [_content(module, config.seed) for module in modules]
    heldout_contents = {c for m, c in zip(modules, contents, strict=True) if m.project in config.heldout_projects}
    ordered = sorted(set(contents) - heldout_contents)
    if not ordered:
        raise UserError(
            "every module belongs to a held-out project: none is left to train on", "hold out fewer projects"
        )
    heldout = _part_size(len(ordered), config.heldout_fraction)
    validation = _part_size(len(ordered), config.validation_fraction)
    if heldout + validation >= len(ordered):
        taken = f"{heldout} held out and {validation} to validate"
        problem = f"{len(ordered)} distinct modules: {taken} leave none to train on"
        raise UserError(problem, "reduce the validation and held-out fractions, or add modules")
    part_of = dict.fromkeys(heldout_contents, "heldout")
    for rank, content in enumerate(ordered):
        part_of[content] = "heldout" if rank < heldout else "validation" if rank < heldout + validation else "train"
    parts: dict[str, list[str]] = {"train": [], "validation": [], "heldout": []}
    for module, content in zip(modules, contents, strict=True):
        parts[part_of[content]].append(module.name)
    return Splits(
        config.seed,
        tuple(parts["train"]),
        tuple(parts["validation"]),
        tuple(parts["heldout"]),
        tuple(sorted(config.heldout_projects)),
    )


def _content(module: Module, seed: int) -> str:
    digest = hashlib.sha256(f"{seed}:".encode())
    digest.update(module.bitcode.read_bytes())
    return digest.hexdigest()


def _part_size(count: int, fraction: float) -> int:
    """Return the number of contents for `fraction` of `count`: at least 1 if count >= MIN_CONTENTS, otherwise 0."""
    if fraction == 0 or count < MIN_CONTENTS:
        return 0
    return max(1, int(count * fraction))
