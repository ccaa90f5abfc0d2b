"""Draws the families of a program from a seed."""

from __future__ import annotations

import random

from tests.campaign.kinds import attributes, control, cxx, flags, identity, linkage, memory
from tests.campaign.program import Family, Kind, Program, build_program

CONCEPTS = (memory, memory, identity, flags, flags, attributes, control, linkage, cxx)


def kinds() -> list[Kind]:
    """Return the functions that make families; some are listed more than once, so that they are drawn more often."""
    return [kind for concept in dict.fromkeys(CONCEPTS) for kind in concept.KINDS]


def generate(seed: int, only: str | None = None) -> Program:
    """Return the program of a seed; it is the same for the same seed.

    Args:
        only: the name of a function of `kinds()`, of which alone the program then has families.
    """
    rng = random.Random(f"nearly equal {seed}")
    number = rng.choice([3, 4, 5, 6, 7])
    families: list[Family] = []
    while len(families) < number:
        concept = rng.choice(CONCEPTS)
        kind: Kind = rng.choice(concept.KINDS)
        if only is not None:
            kind = next(k for k in kinds() if k.__name__ == only)
        family = kind(rng)
        if family.single and any(f.kind == family.kind or f.single for f in families):
            if only is not None:
                break
            continue
        families.append(family)
    return build_program(seed, families, rng)
