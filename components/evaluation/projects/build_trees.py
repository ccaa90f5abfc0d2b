"""Compares the binaries of two build trees of one code base, section by section."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from components.core.compiler.objects.elf import ET_REL
from components.core.projects.flags import archive
from components.core.projects.flags.section_sizes import measure
from components.evaluation.projects.linked_binaries import Binary
from components.platform.console import Progress, say
from components.platform.errors import UserError
from components.platform.storage.input_files import open_regular

VARIANT = "as built"
_TRIAL_DIRECTORIES = ("CMakeFiles", "conftest.dir")
"""Directories in which build systems compile trial programs."""
_DEBUG_SUFFIX = ".debug"
"""Output of `objcopy --only-keep-debug`: it has the sections of its program without their bytes."""
_ELF_MAGIC = b"\x7fELF"


@dataclass(frozen=True)
class ComparedTrees:
    """Common binaries of two trees, and binaries without a counterpart.

    Attributes:
        binaries: linked files and static libraries of both trees; `stock` is the old size, `policy` the new.
        only_old, only_new: paths of such files, relative to their tree, that the other tree lacks.
        different: paths at which the trees have files of different kinds or for different machines.
    """

    binaries: tuple[Binary, ...]
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]
    different: tuple[str, ...]


def compare_trees(old: Path, new: Path, globs: Sequence[str] = ()) -> ComparedTrees:
    """Compare the programs, shared libraries and static libraries with the same paths in two build trees.

    Args:
        old, new: directories. Symbolic links, hidden directories and directories in which build systems compile trial
            programs are skipped.
        globs: compare only paths, relative to the tree, that match one of these; all if empty.

    Raises:
        UserError: a tree is no directory or cannot be read, or the trees have no binary in common.
    """
    paths = [dict(_binaries(tree, globs)) for tree in (old, new)]
    common = sorted(paths[0].keys() & paths[1].keys())
    binaries, different = [], []
    with Progress(f"measuring the binaries of {old} and {new}", len(common)) as progress:
        for name in common:
            try:
                compared = _compare(new.absolute().name, name, paths[0][name], paths[1][name])
            except UserError as error:
                say(f"left out: {error.problem}")
                compared = None
            if compared is None:
                different.append(name)
            else:
                binaries.append(compared)
            progress.advance()
    if not binaries:
        selection = f" that match {' or '.join(globs)}" if globs else ""
        raise UserError(
            f"{old} and {new} have no program or library{selection} in common: {len(paths[0])} in the first, "
            f"{len(paths[1])} in the second, {len(common)} with the same name",
            "pass two build directories of the same code, built for the same target",
        )
    only_old, only_new = (tuple(sorted(a.keys() - b.keys())) for a, b in (paths, paths[::-1]))
    return ComparedTrees(tuple(binaries), only_old, only_new, tuple(different))


def _binaries(tree: Path, globs: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yield the path relative to the tree, and the path, of each linked file and static library."""

    def refuse(error: OSError) -> None:
        raise UserError(f"{error.filename} cannot be read: {error.strerror}", "pass two build directories")

    for directory, names, files in os.walk(tree, onerror=refuse):
        names[:] = sorted(name for name in names if not name.startswith(".") and name not in _TRIAL_DIRECTORIES)
        for file in files:
            path = Path(directory, file)
            name = path.relative_to(tree).as_posix()
            if path.is_symlink() or not path.is_file() or (globs and not any(fnmatch(name, glob) for glob in globs)):
                continue
            try:
                is_binary = _is_linked_or_archive(path)
            except OSError as error:
                say(f"left out: {path} cannot be read: {error.strerror}")
                continue
            if is_binary and path.suffix != _DEBUG_SUFFIX:
                yield name, path


def _is_linked_or_archive(path: Path) -> bool:
    """Return whether a file is linked or an archive; reads only its first bytes, because a tree has many files."""
    with os.fdopen(open_regular(path), "rb") as stream:
        head = stream.read(18)
    is_archive = head[:8] in (archive.MAGIC, archive.THIN_MAGIC)
    return is_archive or (head[:4] == _ELF_MAGIC and int.from_bytes(head[16:18], "little") != ET_REL)


def _compare(project: str, name: str, old: Path, new: Path) -> Binary | None:
    """Compare two files; None if they have different kinds or machines."""
    before, after = measure(old), measure(new)
    if (before.kind, before.machine) != (after.kind, after.machine):
        say(f"left out: {old} and {new} are not the same kind of file for the same machine")
        return None
    return Binary(project, name, after.kind, after.language, VARIANT, before.sizes, after.sizes)
