"""What becomes of each object, source or package that a corpus is made from."""

from __future__ import annotations

from enum import StrEnum
from typing import Self


class OutcomeKind(StrEnum):
    """Kinds of outcomes, as they are named in report.json; `label` describes one after a number of objects."""

    label: str

    def __new__(cls, name: str, label: str) -> Self:
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.label = label
        return kind

    EXTRACTED = "extracted", "extracted"
    ASSEMBLY = "assembly", "made from assembly"
    NO_BITCODE = "no_bitcode", "without bitcode"
    OTHER_COMPILER = "other_compiler", "from another compiler"
    LINKED = "linked", "linked in one command"
    NO_INDEX = "no_index", "without a ThinLTO index"
    MISSING = "missing", "not built"
    FILTERED = "filtered", "filtered out"
    FAILED = "failed", "unreadable"
    DUPLICATE = "duplicate", "equal to others"
    INSTRUMENTED = "instrumented", "left out because a replay would not be the same code"
    NOT_RESTORED = "not_restored", "left out because a replay would drop functions"
    NEWER_LLVM = "newer_llvm", "from a newer LLVM"
    NOT_LINKED = "not_linked", "not linked"
    RELOCATABLE = "relocatable", "relocatable links of native code"
    REMOVED = "removed", "whose linked file no longer exists"
    NO_OUTPUT = "no_output", "commands that make no object"
    NOT_A_COMPILE = "not_a_compile", "other commands"
    OUTSIDE = "outside", "outside of the base directory"
    NOT_AN_OBJECT = "not_an_object", "neither objects nor archives"
    COMPILE_FAILED = "compile_failed", "failed to compile"
    DAMAGED = "damaged", "damaged"
    NO_FUNCTIONS = "no_functions", "without functions"
    PACKAGE_FAILED = "package_failed", "packages left out"
