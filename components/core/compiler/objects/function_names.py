"""Names of functions for people: demangled, on one line, and shortened without losing which function it is."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence

from components.platform.console.escape import escape_line

_DEMANGLERS = ("llvm-cxxfilt-19", "llvm-cxxfilt", "c++filt")
_TIMEOUT_S = 60.0
_NO_BRACKETS = re.compile(r"operator\s*(?:<=>|<<=?|>>=?|->\*?|<=?|>=?|\(\))|->|\(anonymous namespace\)")
"""Characters in names that otherwise are brackets."""
_LAMBDA = re.compile(r"'lambda\d*'\([^()]*(?:\([^()]*\)[^()]*)*\)|\{lambda\([^()]*(?:\([^()]*\)[^()]*)*\)#\d+\}|\$_\d+")
"""A lambda as llvm-cxxfilt and c++filt write gcc's name, and as clang names one in a function of internal linkage."""
_SPACES = re.compile(r"\s+")


def demangle(names: Sequence[str]) -> list[str]:
    """Return the names as the source has them, each on one line; as they are if there is no demangler."""
    given = [escape_line(name) for name in names]
    program = next((path for path in map(shutil.which, _DEMANGLERS) if path), None)
    if program is None or not given:
        return given
    done = subprocess.run(
        [program], input="\n".join(given), capture_output=True, text=True, errors="surrogateescape", timeout=_TIMEOUT_S
    )
    lines = done.stdout.split("\n")[: len(given)]
    if done.returncode or len(lines) != len(given):
        return given
    return [escape_line(_SPACES.sub(" ", line).strip()) for line in lines]


def shorten(name: str, width: int) -> str:
    """Return a demangled name with at most `width` characters.

    Parameters are left out first, then arguments of templates, the innermost first, so that the function's own name
    remains as long as it fits: "std::map<…>::find(…)".
    """
    for opening, closing in (("(", ")"), ("<", ">")):
        depth = max((depth for _, _, depth in _brackets(name, opening, closing)), default=0)
        while len(name) > width and depth:
            name = _empty(name, opening, closing, depth)
            depth -= 1
    return name if len(name) <= width else f"{name[: width - 1]}…"


def without_lambda_numbers(name: str) -> str:
    """Return a demangled name that gcc and clang share: lambdas have no number, and functions of them no parameters.

    The compilers number and mangle lambdas of functions with internal linkage differently. Other names do not change.
    """
    common = _LAMBDA.sub("{lambda}", name)
    if common == name:
        return name
    common = common.removesuffix(" const")
    outer = [start for start, _, depth in _brackets(common, "(", ")") if depth == 1]
    return common[: outer[-1]] if outer and common.endswith(")") else common


def _brackets(name: str, opening: str, closing: str) -> list[tuple[int, int, int]]:
    """Return the positions of each pair of brackets, and how many pairs are open there with it."""
    hidden = _NO_BRACKETS.sub(lambda match: "_" * len(match[0]), name)
    found: list[tuple[int, int, int]] = []
    opened: list[int] = []
    for position, character in enumerate(hidden):
        if character == opening:
            opened.append(position)
        elif character == closing and opened:
            start = opened.pop()
            found.append((start, position, len(opened) + 1))
    return found


def _empty(name: str, opening: str, closing: str, depth: int) -> str:
    """Replace the content of all brackets at this depth, if it is longer than the ellipsis."""
    for start, end, level in reversed(_brackets(name, opening, closing)):
        if level == depth and end - start > 2:
            name = f"{name[: start + 1]}…{name[end:]}"
    return name
