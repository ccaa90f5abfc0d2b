"""Asks the compiler itself whether it parses the arguments of a replay as the replay's tables do.

An option that the tables take for one with a value, and the compiler for one without, would turn its value into an
option: `-default-function-attr -fpass-plugin=X.so` is one option of cc1, and two of the driver. So the compiler gets
the arguments once with a separator after each option and a placeholder for each value, all of which no compiler knows.
It must report each separator as an unknown argument, and no placeholder. It ends there and compiles nothing. Separators
and placeholders are random, because messages also quote the options, which the author of a corpus chose.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from components.core.compiler.replay.replay_options import group_options
from components.platform.errors import UserError
from components.platform.processes import supervision

_TIMEOUT_S = 60.0
_OPTIONS_AT_A_TIME = 100
"""Their errors are usually less than what is kept of stderr."""
_UNKNOWN = re.compile(r"unknown argument:? '(-_-\w+)'")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

Shape = tuple[str, int]
"""An option, and the number of its separate values."""


def misparsed_options(clang: Path, arguments: Sequence[str], is_cc1: bool) -> set[str]:
    """Return the options that the compiler parses otherwise than `group_options` does.

    Args:
        arguments: those of a replay, without input and output; those of cc1 without "-cc1".

    Raises:
        UserError: the compiler does not run.
    """
    shapes, for_cc1 = list[Shape](), list[str]()
    for option, *values in group_options(arguments):
        if option == "-mllvm":  # -mllvm NAME -mllvm VALUE are two
            shapes += [(option, 1)] * len(values[::2])
        else:
            shapes.append((option, len(values)))
            for_cc1 += values if option == "-Xclang" and not is_cc1 else ()
    parts = [tuple(shapes[i : i + _OPTIONS_AT_A_TIME]) for i in range(0, len(shapes), _OPTIONS_AT_A_TIME)]
    wrong = {option for part in parts for option in _misparsed(clang, part, is_cc1)}
    return wrong | (misparsed_options(clang, for_cc1, True) if for_cc1 else set())


@lru_cache(maxsize=4096)
def _misparsed(clang: Path, shapes: tuple[Shape, ...], is_cc1: bool) -> tuple[str, ...]:
    """Return the options of these that the compiler parses otherwise."""
    if not _is_clang(clang, is_cc1):
        return ()  # it will compile nothing
    word = _unknown_word()
    words = [word]
    for number, (option, values) in enumerate(shapes):
        words += [option, *(f"{word}v{number}" for _ in range(values)), f"{word}s{number}"]
    unknown = _unknown_arguments(clang, words, is_cc1)
    if word not in unknown:  # the beginning of long messages is lost
        if len(shapes) == 1:
            return (shapes[0][0],)
        middle = len(shapes) // 2
        return _misparsed(clang, shapes[:middle], is_cc1) + _misparsed(clang, shapes[middle:], is_cc1)
    wrong = (n for n in range(len(shapes)) if f"{word}s{n}" not in unknown or f"{word}v{n}" in unknown)
    return tuple(shapes[number][0] for number in wrong)


@lru_cache
def _is_clang(clang: Path, is_cc1: bool) -> bool:
    word = _unknown_word()
    return word in _unknown_arguments(clang, [word], is_cc1)


def _unknown_word() -> str:
    return f"-_-{secrets.token_hex(8)}"


def _unknown_arguments(clang: Path, words: Sequence[str], is_cc1: bool) -> set[str]:
    """Return the arguments that the compiler calls unknown, as far as the end of its messages has them."""
    command = ["-cc1", *words, "-ferror-limit", "0"]
    if not is_cc1:
        command = ["-###", "--no-default-config", *words, "-c", "-xir", "/dev/null"]
    try:
        with TemporaryDirectory(prefix="mlgo-parse-") as scratch:
            done = supervision.run([clang, *command], _TIMEOUT_S, writable=Path(scratch))
    except supervision.ProcessTimeout:
        raise UserError(
            f"{clang} took more than {_TIMEOUT_S:g} s to parse options", "check the machine's load"
        ) from None
    return set(_UNKNOWN.findall(_COLOUR.sub("", done.stderr)))
