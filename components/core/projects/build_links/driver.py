"""A link as a compiler's driver is called for it."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from components.core.formats.links import Link
from components.core.formats.names import is_utf8
from components.core.projects.driver_arguments import read_arguments
from components.platform.errors import UserError

_CXX = re.compile(r"\+\+(?:-[\d.]+)?$")


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
    last = next((word for word in reversed(arguments) if word.startswith("@")), None)
    if response is not None:
        arguments = [part for word in arguments for part in (response if word == last else (word,))]
    try:
        options = read_arguments(arguments, directory)
    except UserError:
        return None
    output = options.output if options.output is not None or not options.inputs else "a.out"
    if output is None or options.missing or options.compiles or options.other:
        return None
    if not is_utf8("".join([*options.words, directory])):
        return None
    path = os.path.normpath(os.path.join(directory, output))
    return Link(directory, _CXX.search(driver) is not None, tuple(options.words), path)
