"""Splits a corpus by the content of its modules into training, validation and held-out parts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from components.console import UserError
from components.formats.corpus import Module
from components.formats.splits import Splits


@dataclass(frozen=True)
class SplitConfig:
    """How a corpus is split. The fractions are of distinct bitcode contents outside the held-out projects, in [0, 1),
    and leave something to train on."""

    validation_fraction: float = 0.1
    heldout_fraction: float = 0.15
    heldout_projects: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("validation_fraction", "heldout_fraction"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}, it must be at least 0 and below 1", "correct it")
        if self.validation_fraction + self.heldout_fraction >= 1:
            raise UserError("the validation and held-out fractions leave no module to train on", "make them smaller")


def split_modules(modules: Sequence[Module], config: SplitConfig) -> Splits:
    """Assign every module to a part.

    Contents are ordered by the SHA-256 of seed and bitcode, so that neither names nor the order of the corpus
    matter; the first are held out, the next validate, the rest train. Each part with a fraction above 0 gets at
    least one content if there are three. Modules of held-out projects, and whatever has the same content as one of
    them, are held out.

    Raises `UserError` for a held-out project that the corpus does not have, and if nothing is left to train on.
    """
    projects = sorted({module.project for module in modules})
    for project in config.heldout_projects:
        if project not in projects:
            known = f"choose from: {', '.join(projects[:20])}"
            raise UserError(f"the corpus has no project {project!r} to hold out", known)
    contents = [_content(module, config.seed) for module in modules]
    unseen = {c for m, c in zip(modules, contents, strict=True) if m.project in config.heldout_projects}
    ordered = sorted(set(contents) - unseen)
    if not ordered:
        raise UserError("every module belongs to a held-out project: none is left to train on", "hold out fewer")
    heldout = _share(len(ordered), config.heldout_fraction)
    validation = _share(len(ordered), config.validation_fraction)
    if heldout + validation >= len(ordered):
        taken = f"{heldout} held out and {validation} to validate"
        what = f"{len(ordered)} distinct modules: {taken} leave none to train on"
        raise UserError(what, "make the validation and held-out fractions smaller, or add modules")
    part_of = dict.fromkeys(unseen, "heldout")
    for rank, content in enumerate(ordered):
        part_of[content] = (
            "heldout" if rank < heldout else "validation" if rank < heldout + validation else "train"
        )
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


def _share(count: int, fraction: float) -> int:
    """How many of `count` contents; at least one of three, none of one or two."""
    if fraction == 0 or count < 3:
        return 0
    return max(1, int(count * fraction))
