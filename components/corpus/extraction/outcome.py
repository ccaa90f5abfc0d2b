"""Outcome of extracting an object."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from components.corpus.sources.objects import ObjectFile


def describe_newer_llvm(majors: Iterable[int], llvm_major: int) -> str:
    """Return what is wrong with modules that newer versions of LLVM compiled than the one that shall read them."""
    versions = " and ".join(str(major) for major in sorted(set(majors)))
    return f"compiled by LLVM {versions}, whose bitcode LLVM {llvm_major} does not read"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of extracting one object.

    Attributes:
        detail: the reason; for an extracted object a warning, or "".
        llvm_major: version of the LLVM that compiled an extracted object, 0 if unknown.
        digest: `embedded_digest` of an extracted ELF object with one module, else "".
    """

    object: ObjectFile
    kind: str
    detail: str = ""
    llvm_major: int = 0
    digest: str = ""
