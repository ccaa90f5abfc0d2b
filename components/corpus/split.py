"""Split of a corpus into training, validation and held-out parts, by the sources of its modules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from components.core.compiler.source_groups import group_by_source
from components.core.formats.bitcode_symbols import ModuleSymbols
from components.core.formats.corpus import Module
from components.core.formats.splits import SPLITS, Splits
from components.platform.errors import UserError

MIN_SOURCES = 3
"""Number of sources from which on each part of a split has one."""
_MAX_DEVIATION = 0.5
"""Maximum relative deviation of a part's number of sources from its fraction."""


@dataclass(frozen=True)
class SplitConfig:
    """Options of the split of a corpus.

    The fractions are of the sources outside the held-out projects, see source_groups.py. Each is in [0, 1), and their
    sum is below 1; or heldout_fraction is 1, for a corpus that is only evaluated on.

    Attributes:
        validation_fraction: fraction that selects the best checkpoint.
        heldout_fraction: fraction that is held out.
        heldout_projects: projects whose modules are all held out.
        seed: of the sources' positions.
    """

    validation_fraction: float = 0.1
    heldout_fraction: float = 0.15
    heldout_projects: tuple[str, ...] = ()
    seed: int = 0

    def __post_init__(self) -> None:
        if self.heldout_fraction == 1:
            return
        for name in ("validation_fraction", "heldout_fraction"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}, it must be at least 0 and below 1", "correct it")
        if self.validation_fraction + self.heldout_fraction >= 1:
            raise UserError(
                "the validation and held-out fractions leave no module to train on",
                "reduce them, or pass a held-out fraction of 1 for a corpus that is only evaluated on",
            )


def split_modules(
    modules: Sequence[Module], config: SplitConfig, symbols: Sequence[ModuleSymbols] | None = None
) -> Splits:
    """Assign every module to a part; modules of one source are in the same part.

    A source's pseudorandom position decides: below heldout_fraction it is held out, below the sum of both fractions it
    is for validation, else for training. So a source remains in its part when other modules are added. In small corpora
    parts would differ much in size: each is within 50% of its fraction, and has at least one source if there are at
    least MIN_SOURCES. Modules of held-out projects, and those of a source that one of them has, are held out.

    Args:
        symbols: those of each module; None reads them.

    Raises:
        UserError: the corpus does not have a held-out project, or the fractions leave no module to train on. All
            modules are held out only if a fraction of 1 or the projects say so.
    """
    projects = sorted({module.project for module in modules})
    for project in config.heldout_projects:
        if project not in projects:
            remedy = f"choose from: {', '.join(projects[:20])}"
            raise UserError(f"the corpus has no project {project!r} to hold out", remedy)
    groups = group_by_source(modules, config.seed, symbols)
    free = [g for g in groups if not any(modules[index].project in config.heldout_projects for index in g.indices)]
    heldout, validation = len(free), 0
    if config.heldout_fraction < 1:
        heldout, validation = _part_sizes([group.position for group in free], config)
    if free and config.heldout_fraction < 1 and heldout + validation >= len(free):
        raise UserError(
            f"{len(free)} sources of modules: {heldout} held out and {validation} to validate leave none to train on",
            "reduce the validation and held-out fractions, or add modules",
        )
    part_of = ["heldout"] * len(modules)
    for rank, group in enumerate(free):
        for index in group.indices:
            part_of[index] = "heldout" if rank < heldout else "validation" if rank < heldout + validation else "train"
    parts: dict[str, list[str]] = {name: [] for name in SPLITS}
    for module, part in zip(modules, part_of, strict=True):
        parts[part].append(module.name)
    train, validating, held = (tuple(parts[name]) for name in SPLITS)
    return Splits(config.seed, train, validating, held, tuple(sorted(config.heldout_projects)))


def _part_sizes(positions: Sequence[float], config: SplitConfig) -> tuple[int, int]:
    """Return the numbers of held-out and of validation sources, of sources at ascending positions."""
    count = len(positions)
    both = config.heldout_fraction + config.validation_fraction
    if count < MIN_SOURCES or both == 0:
        return 0, 0
    # With large fractions, less, so that half of the training sources remain at least.
    deviation = min(_MAX_DEVIATION, (1 - both) / both / 2)

    def bounded(number: int, fraction: float) -> int:
        if fraction == 0:
            return 0
        lowest = max(1, int(count * fraction * (1 - deviation)))
        return min(max(number, lowest), max(lowest, math.floor(count * fraction * (1 + deviation))))

    heldout = bounded(sum(position < config.heldout_fraction for position in positions), config.heldout_fraction)
    below = sum(position < both for position in positions)
    validation = bounded(below - heldout, config.validation_fraction)
    # Of three sources, one of each kind: not two to validate, which leaves none to train on.
    return heldout, min(validation, max(1, count - heldout - 1))
