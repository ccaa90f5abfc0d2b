"""The language of a module's source: C and C++ differ in what inlining does to them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Literal

Language = Literal["c", "c++", "other"]

LANGUAGES: tuple[Language, ...] = ("c", "c++", "other")
_SUFFIXES: dict[str, Language] = {
    ".c": "c", ".cc": "c++", ".cp": "c++", ".cpp": "c++", ".cxx": "c++", ".c++": "c++", ".C": "c++", ".CPP": "c++",
    ".m": "other", ".mm": "other", ".cu": "other", ".rs": "other", ".swift": "other",
}  # fmt: skip
_OF_OPTION: dict[str, Language] = {
    "c": "c", "cpp-output": "c", "c-header": "c", "c++": "c++", "c++-cpp-output": "c++", "c++-header": "c++",
}  # fmt: skip
"""What follows -x: cpp-output is what was preprocessed before it was compiled, as ccache does."""
_OBJECT_SUFFIXES = frozenset({".o", ".obj", ".lo", ".os", ".pic"})


def source_language(arguments: Sequence[str], name: str) -> Language:
    """Return the language of a module's source.

    Args:
        arguments: the module's recorded arguments. -fembed-bitcode records neither the language nor the input.
        name: the module's, the path of its object: what is before ".o" often is the source's name.
    """
    language = dict(pairwise(arguments)).get("-x", "")
    if language not in ("", "ir", "none"):
        return _OF_OPTION.get(language, "other")
    path = PurePosixPath(name)
    while path.suffix in _OBJECT_SUFFIXES:
        path = path.with_suffix("")
    if path.suffix in _SUFFIXES:
        return _SUFFIXES[path.suffix]
    if not arguments or arguments[0] != "-cc1" or language or any(flag.startswith("-fobjc-") for flag in arguments):
        return "other"
    # clang's driver gives the former to cc1 for all C++, the latter unless exceptions are off.
    return "c++" if {"-fdeprecated-macro", "-fcxx-exceptions"} & set(arguments) else "c"
