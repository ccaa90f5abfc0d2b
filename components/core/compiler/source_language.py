"""Detects the source language of a module; inlining affects C and C++ differently."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Literal

Language = Literal["c", "c++", "other"]

LANGUAGES: tuple[Language, ...] = ("c", "c++", "other")
_SUFFIXES: dict[Language, str] = {
    "c": ".c .i",
    "c++": ".cc .cp .cpp .cxx .c++ .C .CPP .cppm .ccm .cxxm .c++m .ixx .ii",
    "other": ".m .mm .cu .rs .swift",
}
_BY_SUFFIX = {suffix: language for language, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}
_OPTIONS: dict[Language, str] = {
    "c": "c cpp-output c-header",
    "c++": "c++ c++-cpp-output c++-header c++-module",
}
_BY_OPTION = {option: language for language, options in _OPTIONS.items() for option in options.split()}
"""Language by the value of -x; cpp-output is code that was preprocessed before compilation, for example by ccache."""
_OBJECT_SUFFIXES = frozenset({".o", ".obj", ".lo", ".os", ".pic"})


def source_language(arguments: Sequence[str], name: str) -> Language:
    """Return the language of a module's source.

    Args:
        arguments: the module's recorded arguments. -fembed-bitcode records neither the language nor the input.
        name: the module's name, the path of its object: the part before ".o" is often the name of the source.
    """
    language = dict(pairwise(arguments)).get("-x", "")
    # Not each word that begins with -x: cc1 takes options of LLVM, such as -x86-asm-syntax.
    language = next((word[2:] for word in arguments if word.startswith("-x") and word[2:] in _BY_OPTION), language)
    if language not in ("", "ir", "none"):
        return _BY_OPTION.get(language, "other")
    path = PurePosixPath(name)
    while path.suffix in _OBJECT_SUFFIXES:
        path = path.with_suffix("")
    if path.suffix in _BY_SUFFIX:
        return _BY_SUFFIX[path.suffix]
    if not arguments or arguments[0] != "-cc1" or language or any(flag.startswith("-fobjc-") for flag in arguments):
        return "other"
    # clang's driver passes the former to cc1 for all C++, the latter unless exceptions are disabled.
    return "c++" if {"-fdeprecated-macro", "-fcxx-exceptions"} & set(arguments) else "c"
