"""The files that a link reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from components.core.formats.links import Link
from components.core.projects.build_links.driver import RELOCATABLE

NEXT_IS_VALUE = frozenset(("-o", "-MF", "-MT", "-MQ", "-MJ", "-x", "-u", "-z", "-e", "-h", "-soname", "--output"))
"""Options of a link that take the next word, which is no file that it reads."""
_WHOLE = {"--whole-archive": True, "-whole-archive": True, "--no-whole-archive": False, "-no-whole-archive": False}


def input_paths(link: Link) -> Iterator[str]:
    """Yield the paths of the files that a link reads, those of -l in the directories of its -L; not the system's."""
    return (path for path, _whole in linker_inputs(link))


def linker_inputs(link: Link, exists: Callable[[str], bool] = os.path.isfile) -> Iterator[tuple[str, bool]]:
    """Yield the path of each file of `input_paths`, and whether all members of it are linked if it is an archive.

    Args:
        exists: whether a build has a file, or is going to have it.
    """
    words = flatten(link.arguments)
    searched: list[str] = []
    libraries: list[tuple[str, bool]] = []
    previous, whole = "", False
    for _for_linker, word in words:
        before, previous = previous, word
        whole = _WHOLE.get(word, whole)
        if before == "-L":
            searched.append(word)
        elif word.startswith("-L") and len(word) > 2:
            searched.append(word[2:])
        elif before == "-l" or (word.startswith("-l") and len(word) > 2):
            libraries.append((word.removeprefix("-l") if before != "-l" else word, whole))
        elif before not in NEXT_IS_VALUE and word and not word.startswith("-"):
            path = os.path.join(link.directory, word)
            if exists(path):
                yield path, whole
    for name, whole in libraries:
        names = (name[1:],) if name.startswith(":") else (f"lib{name}.so", f"lib{name}.a")
        for directory in searched:
            for file in names:
                path = os.path.join(link.directory, directory, file)
                if exists(path):
                    yield path, whole


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
