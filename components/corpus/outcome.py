"""What became of an object."""

from __future__ import annotations

from dataclasses import dataclass

from components.corpus.objects import ObjectFile

EXTRACTED = "extracted"
ASSEMBLY = "assembly"
NO_BITCODE = "no_bitcode"
NO_INDEX = "no_index"
MISSING = "missing"
FILTERED = "filtered"
FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one object: `kind` is one of the constants above, `detail` says why.

    Of what was extracted there is a detail only if something is odd about it.
    """

    object: ObjectFile
    kind: str
    detail: str = ""
