"""Draws the families of a program from a seed."""

from __future__ import annotations

import random

from tests.campaign.kinds import attributes, control, cxx, flags, identity, library, linkage, memory, repeats
from tests.campaign.program import Family, Kind, Program, build_program

CONCEPTS = (memory, memory, identity, flags, flags, attributes, control, linkage, cxx, repeats, library)


def kinds() -> list[Kind]:
    """Return the functions that make families; some are listed more than once, so that they are drawn more often."""
    return [kind for concept in dict.fromkeys(CONCEPTS) for kind in concept.KINDS]


def kinds_of_concepts() -> dict[str, str]:
    """Return the names of the kinds of each concept, as `generate` takes them, by the concept's name."""
    return {
        concept.__name__.rpartition(".")[2]: ",".join(dict.fromkeys(kind.__name__ for kind in concept.KINDS))
        for concept in dict.fromkeys(CONCEPTS)
    }


def generate(seed: int, only: str | None = None) -> Program:
    """Return the program of a seed; it is the same for the same seed.

    Args:
        only: the name of a function of `kinds()`, of which alone the program then has families, or several names,
            separated by commas, for one family of each.
    """
    rng = random.Random(f"nearly equal {seed}")
    number = rng.choice([3, 4, 5, 6, 7])
    named = only.split(",") if only else []
    number = len(named) if len(named) > 1 else number
    families: list[Family] = []
    for index in range(4 * number):
        if len(families) == number:
            break
        kind: Kind
        if named:
            kind = next(k for k in kinds() if k.__name__ == named[index % len(named)])
        else:
            kind = rng.choice(rng.choice(CONCEPTS).KINDS)
        family = kind(rng)
        if not (family.single and any(f.single for f in families)):
            families.append(family)
    return build_program(seed, families, rng)
