"""The files that a link reads."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence

from components.core.formats.links import Link
from components.core.projects.build_links.driver import RELOCATABLE

_VALUES = frozenset(("-o", "--output", "-u", "-z", "-e", "-h", "-soname"))
_DRIVER_VALUES = frozenset(("-MF", "-MT", "-MQ", "-MJ", "-x"))
"""Options that take the next word as the driver's, not as a linker's: ld -x."""
_STATIC = {"-Bstatic": True, "-static": True, "-dn": True, "-Bdynamic": False, "-dy": False}
_WHOLE = {"--whole-archive": True, "-whole-archive": True, "--no-whole-archive": False, "-no-whole-archive": False}


def input_paths(link: Link) -> Iterator[str]:
    """Yield the paths of the files that a link reads, those of -l in the directories of its -L; not the system's."""
    return (path for path, _whole in linker_inputs(link))


def linker_inputs(link: Link, exists: Callable[[str], bool] = os.path.isfile) -> Iterator[tuple[str, bool]]:
    """Yield the path of each file of `input_paths`, and whether all members of it are linked if it is an archive.

    Args:
        exists: whether a build has a file, or is going to have it.
    """
    searched: list[str] = []
    libraries: list[tuple[str, bool, bool]] = []
    previous, whole = (False, ""), False
    static = not {"-static", "-static-pie"}.isdisjoint(link.arguments)
    for for_linker, word in flatten(link.arguments):
        before, previous = previous, (for_linker, word)
        whole, static = _WHOLE.get(word, whole), _STATIC.get(word, static)
        if before[1] == "-L":
            searched.append(word)
        elif word.startswith("-L") and len(word) > 2:
            searched.append(word[2:])
        elif before[1] == "-l" or (word.startswith("-l") and len(word) > 2):
            libraries.append((word.removeprefix("-l") if before[1] != "-l" else word, whole, static))
        elif not takes_value(*before) and word and not word.startswith("-"):
            path = os.path.join(link.directory, word)
            if exists(path):
                yield path, whole
    for name, whole, static in libraries:
        names = [f"lib{name}.a"] if static else [f"lib{name}.so", f"lib{name}.a"]
        if name.startswith(":"):
            names = [name[1:]]
        candidates = (os.path.join(link.directory, directory, file) for directory in searched for file in names)
        yield from ((path, whole) for path in itertools.islice(filter(exists, candidates), 1))


def takes_value(for_linker: bool, word: str) -> bool:
    """Return whether a word of a link is an option that takes the next word, which is no file that the link reads.

    Args:
        for_linker: whether it is the linker's, not the driver's.
    """
    return word in _VALUES or (not for_linker and word in _DRIVER_VALUES)


def flatten(arguments: Sequence[str]) -> list[tuple[bool, str]]:
    """Return the words of a driver's arguments, those in -Wl and -Xlinker too, each with whether it is the linker's."""
    words: list[tuple[bool, str]] = []
    iterator = iter(arguments)
    for word in iterator:
        if word == "-Xlinker":
            words += [(True, value) for value in (next(iterator, None),) if value is not None]
        elif word.startswith("-Wl,"):
            words += [(True, part) for part in word.split(",")[1:]]
        else:
            words.append((False, word))
    return words


def is_relocatable(link: Link) -> bool:
    """Return whether a link makes an object (-r)."""
    return any(word in RELOCATABLE for _for_linker, word in flatten(link.arguments))
