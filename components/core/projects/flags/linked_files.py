"""Finds the linked files and static libraries of a build tree."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from components.core.compiler.objects import archive
from components.core.compiler.objects.elf import LINKED_TYPES, TYPE_BYTES, elf_type
from components.core.projects.source_tree import SHRINK_FILE
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.input_files import open_regular
from components.platform.storage.manifest import MANIFEST

_TRIAL_DIRECTORIES = ("CMakeFiles", "conftest.dir", "meson-private")
"""Directories in which build systems compile trial programs."""
_LIBTOOL_DIRECTORY = ".libs"
_BAZEL_BIN = "bazel-out/*/bin"
"""Where Bazel's link to the outputs of a workspace leads, whose name --symlink_prefix determines."""
_SHRUNK = (SHRINK_FILE, MANIFEST)
"""Files that every output of `mlgo shrink` has, which by default is in the source tree."""
_DEBUG_SUFFIX = ".debug"
"""Output of `objcopy --only-keep-debug`: it has the sections of its program without their bytes."""


def find_binaries(tree: Path, globs: Sequence[str] = ()) -> Iterator[tuple[str, Path]]:
    """Yield the path relative to the tree, and the path, of each program, shared library and static library.

    Symbolic links are skipped but bazel-bin, directories in which build systems compile trial programs, outputs of
    `mlgo shrink` below the tree, and hidden directories but libtool's, which has the programs and libraries.

    Args:
        globs: only paths, relative to the tree, that match one of these; all if empty.

    Raises:
        UserError: a directory cannot be read.
    """

    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename} cannot be read: {error.strerror}", "pass a directory that you may read")

    seen = set()
    for directory, names, files in os.walk(tree, onerror=refuse, followlinks=True):
        place = os.stat(directory)
        if (identity := (place.st_dev, place.st_ino)) in seen:  # where bazel-bin leads may be in the tree
            names.clear()
            continue
        seen.add(identity)
        names[:] = sorted(name for name in names if not _is_skipped(Path(directory, name)))
        for file in files:
            path = Path(directory, file)
            name = path.relative_to(tree).as_posix()
            if path.is_symlink() or not path.is_file() or not matches(name, globs):
                continue
            try:
                is_binary = is_linked_or_archive(path)
            except OSError as error:
                say(f"left out: {path} cannot be read: {error.strerror}")
                continue
            if is_binary and path.suffix != _DEBUG_SUFFIX:
                yield name, path


def _is_skipped(directory: Path) -> bool:
    name = directory.name
    if directory.is_symlink():
        return not directory.resolve().match(_BAZEL_BIN)
    if (name.startswith(".") and name != _LIBTOOL_DIRECTORY) or name in _TRIAL_DIRECTORIES:
        return True
    return all((directory / file).is_file() for file in _SHRUNK)


def matches(name: str, globs: Sequence[str]) -> bool:
    """Return whether a name matches one of the globs, as every name does where there are none."""
    return not globs or any(fnmatch(name, glob) for glob in globs)


def copy_links(path: Path, copy: Path) -> None:
    """Make the symbolic links to a file that are next to it next to its copy, too: names of versions of a library."""
    real = os.path.realpath(path)
    with os.scandir(path.parent) as entries:
        names = [entry.name for entry in entries if entry.is_symlink() and os.path.realpath(entry.path) == real]
    for name in names:
        if not (copy.parent / name).exists():
            (copy.parent / name).symlink_to(copy.name)


def is_archive(path: Path) -> bool:
    """Return whether a file is a static library."""
    with os.fdopen(open_regular(path), "rb") as stream:
        return archive.is_archive(stream.read(8))


def is_linked_or_archive(path: Path) -> bool:
    """Return whether a file is linked or an archive; reads only its first bytes, because a tree has many files."""
    with os.fdopen(open_regular(path), "rb") as stream:
        head = stream.read(TYPE_BYTES)
    return archive.is_archive(head) or elf_type(head) in LINKED_TYPES
