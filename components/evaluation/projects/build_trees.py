"""Compares the binaries of two build trees of one code base, or two binaries, section by section."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from components.core.projects.flags.linked_files import find_binaries
from components.core.projects.flags.section_sizes import MeasuredBinary, measure
from components.evaluation.projects.linked_binaries import Binary
from components.platform.console import Progress, say
from components.platform.errors import UserError

VARIANT = "as built"


@dataclass(frozen=True)
class ComparedTrees:
    """Common binaries of two trees, and binaries without a counterpart.

    Attributes:
        binaries: linked files and static libraries of both trees; `stock` is the old size, `policy` the new.
        only_old, only_new: paths of such files, relative to their tree, that the other tree lacks.
        different: paths at which the trees have files of different kinds or for different machines.
        files: name of a common binary -> the two files.
        bitcode: of each tree, the number of linked files with embedded bitcode, and its bytes, which do not count.
    """

    binaries: tuple[Binary, ...]
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]
    different: tuple[str, ...]
    files: dict[str, tuple[Path, Path]]
    bitcode: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))


def compare_trees(old: Path, new: Path, globs: Sequence[str] = ()) -> ComparedTrees:
    """Compare the programs, shared libraries and static libraries with the same paths in two build trees.

    Args:
        old, new: directories, see `find_binaries` for what is skipped; or two files, whatever their names.
        globs: compare only paths, relative to the tree, that match one of these; all if empty.

    Raises:
        UserError: a tree is no directory or cannot be read, or the trees have no binary in common.
    """
    if old.is_file() and new.is_file():
        paths = [{new.name: old}, {new.name: new}]
    else:
        paths = [dict(find_binaries(tree, globs)) for tree in (old, new)]
    common = sorted(paths[0].keys() & paths[1].keys())
    project = (new.parent if new.is_file() else new).absolute().name
    binaries, different = [], []
    embedded: tuple[list[int], list[int]] = ([], [])
    with Progress(f"measuring the binaries of {old} and {new}", len(common)) as progress:
        for name in common:
            try:
                before, after = (measure(path[name]) for path in paths)
                compared = _compare(project, name, before, after)
            except UserError as error:
                say(f"left out: {error.problem}")
                compared = None
            if compared is None:
                different.append(name)
            else:
                binaries.append(compared)
                for sizes, binary in zip(embedded, (before, after), strict=True):
                    sizes += [binary.bitcode] if binary.bitcode else []
            progress.advance()
    if not binaries:
        selection = f" that match {' or '.join(globs)}" if globs else ""
        raise UserError(
            f"{old} and {new} have no program or library{selection} in common: {len(paths[0])} in the first, "
            f"{len(paths[1])} in the second, {len(common)} with the same name",
            "pass two build directories of the same code, built for the same target",
        )
    only_old, only_new = (tuple(sorted(a.keys() - b.keys())) for a, b in (paths, paths[::-1]))
    files = {binary.name: (paths[0][binary.name], paths[1][binary.name]) for binary in binaries}
    old_bitcode, new_bitcode = ((len(sizes), sum(sizes)) for sizes in embedded)
    bitcode = old_bitcode, new_bitcode
    return ComparedTrees(tuple(binaries), only_old, only_new, tuple(different), files, bitcode)


def _compare(project: str, name: str, before: MeasuredBinary, after: MeasuredBinary) -> Binary | None:
    """Compare two files; None if they have different kinds or machines."""
    if (before.kind, before.machine) != (after.kind, after.machine):
        say(f"left out: {name}: not the same kind of file for the same machine in both trees")
        return None
    return Binary(project, name, after.kind, after.language, VARIANT, before.sizes, after.sizes)
