"""Finds the profiles that a module is compiled with, which are part of its corpus.

`clang -fprofile-use` reads a file during optimization (the branch weights of the front end are already in the bitcode),
so without the file the same bitcode compiles to different code. A corpus keeps such files in a separate directory, and
a module's arguments name them relative to the directory of its .cmd: these paths stay valid on any machine, wherever
the corpus is, and when corpora are combined.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

PROFILE_OPTIONS = (
    "-fprofile-instrument-use-path",
    "-fprofile-sample-use",
    "-fprofile-remapping-file",
    "-fmemory-profile-use",
)
"""cc1 options in LLVM 19 (clang/include/clang/Driver/Options.td), each followed by "=" and the path of a file."""


def parse_profile_option(argument: str) -> tuple[str, str] | None:
    """Return the option and the path of an argument that names a profile, None for any other argument."""
    option, _, path = argument.partition("=")
    return (option, path) if option in PROFILE_OPTIONS and path else None


def profile_resolver(bitcode: Path, corpus: Path | None) -> Callable[[str], str | None]:
    """Return a function that resolves the path in a recorded argument that names a profile of this corpus.

    The function returns None for every other argument, including one that names a file outside of the corpus, directly
    or through a link.
    """

    def resolve(argument: str) -> str | None:
        profile_option = parse_profile_option(argument)
        if profile_option is None or corpus is None:
            return None
        option, path = profile_option
        file = _resolve_in_corpus(bitcode.parent, path, corpus)
        return None if file is None else f"{option}={file}"

    return resolve


def find_profiles(arguments: Sequence[str], directory: Path, corpus: Path) -> list[Path]:
    """Return the paths of the corpus's profiles that a module's arguments name relative to `directory`."""
    options = [option for argument in arguments if (option := parse_profile_option(argument))]
    files = [_resolve_in_corpus(directory, path, corpus) for _name, path in options]
    return [file for file in files if file is not None]


def _resolve_in_corpus(directory: Path, path: str, corpus: Path) -> Path | None:
    """Return `path` resolved relative to `directory` if that is a file of the corpus, None otherwise."""
    if os.path.isabs(path) or "\0" in path:
        return None
    file = Path(os.path.normpath(directory / path))
    real, root = os.path.realpath(file), os.path.realpath(corpus)
    return file if os.path.isfile(real) and os.path.commonpath([real, root]) == root else None
