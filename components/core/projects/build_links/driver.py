"""A link as a compiler's driver is called for it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from components.core.formats.links import Link
from components.core.formats.names import is_utf8
from components.core.projects.response_files import split_response_file
from components.platform.errors import UserError
from components.platform.storage.input_files import read_bytes

_CXX = re.compile(r"\+\+(?:-[\d.]+)?$")
_NO_LINK = frozenset(("-c", "-E", "-S", "-M", "-MM", "-fsyntax-only", "--version", "-###"))


def make_link(
    driver: str, arguments: Sequence[str], directory: str, response: Sequence[str] | None = None
) -> Link | None:
    """Return the link of a driver's call; None if it makes no linked file, or a response file is gone.

    Args:
        driver: name or path of the driver.
        arguments: of the driver.
        directory: absolute path of the directory that it ran in.
        response: arguments in the last response file, if they are known; the others are read.
    """
    words: list[str] = []
    responses = [word for word in arguments if word.startswith("@")]
    for word in arguments:
        if not word.startswith("@"):
            words.append(word)
        elif response is not None and word == responses[-1]:
            words += response
        else:
            file = Path(directory, word[1:])
            try:
                words += split_response_file(read_bytes(file), file)
            except UserError:
                return None
    output = _output(words)
    if output is None or _NO_LINK.intersection(words) or not is_utf8("".join([*words, directory])):
        return None
    path = os.path.normpath(os.path.join(directory, output))
    return Link(directory, _CXX.search(driver) is not None, tuple(words), path)


def _output(words: Sequence[str]) -> str | None:
    output = "a.out" if any(not word.startswith("-") for word in words) else None
    for index, word in enumerate(words):
        if word in ("-o", "--output"):
            output = words[index + 1] if index + 1 < len(words) else None
        elif word.startswith("--output="):
            output = word.removeprefix("--output=")
        elif word.startswith("-o") and not word.startswith("-objc"):
            output = word[2:]
    return output
