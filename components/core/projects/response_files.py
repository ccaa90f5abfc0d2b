"""Response files: arguments of a compiler or linker in a file, @FILE on its command line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from components.platform.errors import UserError


def write_response_file(path: Path, arguments: Iterable[str | Path]) -> None:
    """Write a response file, one argument a line, as `split_response_file` reads it."""
    lines = [re.sub(r'(["\\])', r"\\\1", os.fspath(argument)) for argument in arguments]
    path.write_text("".join(f'"{line}"\n' for line in lines), encoding="utf-8", errors="surrogateescape")


def split_response_file(content: bytes, where: Path) -> list[str]:
    """Split a response file into arguments as lld and GNU ld do (cl::TokenizeGNUCommandLine, libiberty's buildargv).

    Blanks, tabs and line ends separate arguments, quotes keep them, and a backslash keeps the next character, also
    inside of quotes. There are no comments.

    Args:
        content: of the file: UTF-8 with or without a byte order mark, or UTF-16 with one.
        where: the file, for errors.

    Raises:
        UserError: a quote is not closed.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = content.decode("utf-16", "replace")
    else:
        text = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape")
    arguments: list[str] = []
    word: list[str] | None = None
    quote = ""
    characters = iter(text)
    for character in characters:
        if not quote and character in " \t\r\n":
            if word is not None:
                arguments.append("".join(word))
            word = None
            continue
        word = [] if word is None else word
        if character == "\\":
            word.append(next(characters, character))
        elif quote:
            if character == quote:
                quote = ""
            else:
                word.append(character)
        elif character in "\"'":
            quote = character
        else:
            word.append(character)
    if quote:
        raise UserError(f"{where} ends inside of {quote} quotes", "quote it as the linker expects, or write it again")
    return arguments if word is None else [*arguments, "".join(word)]
