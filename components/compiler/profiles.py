"""Profiles that a module is compiled with, which are part of its corpus.

`clang -fprofile-use` reads a file while it optimizes (the branch weights that the front end wrote are in the bitcode
already), so that without it the same bitcode becomes other code. A corpus has such files in a directory of its own, and
a module's arguments name them relative to the directory of its .cmd: the same on any machine, wherever the corpus lies,
and when corpora are combined.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from components.formats.corpus import Module

PROFILE_OPTIONS = (
    "-fprofile-instrument-use-path", "-fprofile-sample-use", "-fprofile-remapping-file", "-fmemory-profile-use",
)  # fmt: skip
"""Of cc1 in LLVM 19 (clang/include/clang/Driver/Options.td), each followed by "=" and the path of a file."""


def profile_of(argument: str) -> tuple[str, str] | None:
    """Return option and path of an argument that names a profile; None of any other."""
    option, _, path = argument.partition("=")
    return (option, path) if option in PROFILE_OPTIONS and path else None


def resolver(bitcode: Path, corpus: Path | None) -> Callable[[str], str | None]:
    """Return what turns a recorded argument that names a profile of this corpus into one for a compile anywhere.

    Its result is None for every other argument, also for one that names a file outside of the corpus, by a link, too.
    """

    def resolve(argument: str) -> str | None:
        found = profile_of(argument)
        if found is None or corpus is None:
            return None
        option, path = found
        file = _inside(bitcode.parent, path, corpus)
        return None if file is None else f"{option}={file}"

    return resolve


def profiles_of(module: Module) -> list[Path]:
    """Return the profiles of its corpus that a module's arguments name."""
    if module.command_override is not None:
        return []
    named = [found[1] for argument in module.arguments() if (found := profile_of(argument))]
    files = [_inside(module.cmd.parent, path, module.directory) for path in named]
    return [file for file in files if file is not None]


def _inside(directory: Path, path: str, corpus: Path) -> Path | None:
    """A relative path below `directory`, if it is a file of the corpus; None otherwise."""
    if os.path.isabs(path) or "\0" in path:
        return None
    file = Path(os.path.normpath(directory / path))
    real, root = os.path.realpath(file), os.path.realpath(corpus)
    return file if os.path.isfile(real) and os.path.commonpath([real, root]) == root else None
