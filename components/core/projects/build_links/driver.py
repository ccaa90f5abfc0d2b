"""A link as a compiler's driver is called for it, or a linker for a relocatable link (ld -r)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from components.core.formats.links import Link, Lto
from components.core.formats.names import is_utf8
from components.core.projects.driver_arguments import read_arguments
from components.platform.errors import UserError

_CXX = re.compile(r"\+\+(?:-[\d.]+)?$")
LINKER = re.compile(r"(?:.*-)?ld(?:\.(?P<kind>bfd|gold|lld))?")
"""Names of linkers that links run without a driver."""
RELOCATABLE = ("-r", "-i", "--relocatable", "-relocatable")
"""Options of linkers, the first also of drivers, that make an object."""
_LINKER_VALUES = frozenset(
    """
    -A -F -Map -R -T -a -b -c -e -f -h -m -mllvm -soname -u -y -z --defsym --entry --format --just-symbols --script
    --soname --undefined --version-script
    """.split()
)
"""Options of linkers that take the next word and mean something else to a driver."""


def make_link(
    driver: str, arguments: Sequence[str], directory: str, response: Sequence[str] | None = None
) -> Link | None:
    """Return the link of a driver's call; None if it makes no linked file, or a response file is gone.

    Args:
        driver: name or path of the driver, or of a linker, whose relocatable links are those of a driver.
        directory: absolute path of the directory that it ran in.
        response: arguments in the last response file, if they are known; the others are read.
    """
    last = next((word for word in reversed(arguments) if word.startswith("@")), None)
    if response is not None:
        arguments = [part for word in arguments for part in (response if word == last else (word,))]
    try:
        if linker := LINKER.fullmatch(os.path.basename(driver)):
            words = read_arguments(arguments, directory).words
            if not set(RELOCATABLE).intersection(words):
                return None
            arguments = _as_driver(words, linker["kind"])
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


def lto_of(words: Iterable[str]) -> Lto | None:
    """Return the LTO that a driver's arguments ask for: that of the last option."""
    lto: Lto | None = None
    for word in words:
        if word == "-fno-lto":
            lto = None
        elif word == "-flto" or word.startswith("-flto="):
            lto = "thin" if word == "-flto=thin" else "full"
    return lto


def _as_driver(words: Sequence[str], linker: str | None) -> list[str]:
    """Return the driver's arguments for a relocatable link by a linker: "bfd", "gold", "lld", None for the default.

    A driver passes on its linker's options and the files in their order, and adds nothing to -r but a build ID.
    """
    arguments = ["-r", "-Wl,--build-id=none", *([f"-fuse-ld={linker}"] if linker else [])]
    iterator = iter(words)
    for word in iterator:
        if word in ("-o", "--output", "-L", "-l"):
            arguments += [word, next(iterator, "")]
        elif word in RELOCATABLE or word.startswith(("-L", "-l", "--output=")) or not word.startswith("-"):
            arguments += [] if word in RELOCATABLE else [word]
        else:
            for part in (word, next(iterator, "")) if word in _LINKER_VALUES else (word,):
                arguments += ["-Xlinker", part] if "," in part or not part else [f"-Wl,{part}"]
    return arguments
