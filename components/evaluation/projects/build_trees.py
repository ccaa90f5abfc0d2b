"""Compares the binaries of two builds of one code base, or two binaries, section by section."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from components.evaluation.projects.linked_binaries import Binary
from components.evaluation.projects.measured_builds import BUILD_FILE, Build, MeasuredFile, align, open_build, open_file
from components.platform.console import Progress, say
from components.platform.errors import UserError

VARIANT = "as built"


@dataclass(frozen=True)
class ComparedBuilds:
    """Common binaries of two builds, and binaries without a counterpart.

    Attributes:
        binaries: linked files and static libraries of both builds; `stock` is the old size, `policy` the new.
        old, new: the builds.
        before, after: their files of `binaries`, by name.
        only_old, only_new: paths of such files, relative to their build, that the other build lacks.
        different: paths at which the builds have files of different kinds or for different machines.
    """

    binaries: tuple[Binary, ...]
    old: Build
    new: Build
    before: dict[str, MeasuredFile]
    after: dict[str, MeasuredFile]
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]
    different: tuple[str, ...]

    @property
    def bitcode(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Number of linked files with embedded bitcode, and bytes of it, which do not count, in each build."""
        old, new = ([file.bitcode for file in files.values() if file.bitcode] for files in (self.before, self.after))
        return (len(old), sum(old)), (len(new), sum(new))


def compare_trees(old: Path, new: Path, globs: Sequence[str] = ()) -> ComparedBuilds:
    """Compare the programs, shared libraries and static libraries with the same paths in two builds.

    Args:
        old, new: directories as `open_build` reads them; or two files, whatever their names.
        globs: compare only paths, relative to the build directory, that match one of these; all if empty.

    Raises:
        UserError: a directory is no build or cannot be read, or the builds have no binary in common.
    """
    if old.is_file() and new.is_file() and BUILD_FILE not in (old.name, new.name):
        builds = open_file(old, new.name), open_file(new, new.name)
    else:
        builds = align(open_build(old, globs), open_build(new, globs))
    common = sorted(builds[0].files.keys() & builds[1].files.keys())
    before: dict[str, MeasuredFile] = {}
    after: dict[str, MeasuredFile] = {}
    different = []
    with Progress(f"measuring the binaries of {old} and {new}", len(common)) as progress:
        for name in common:
            if pair := _measure_both(name, *builds):
                before[name], after[name] = pair
            else:
                different.append(name)
            progress.advance()
    if not before:
        selection = f" that match {' or '.join(globs)}" if globs else ""
        raise UserError(
            f"{old} and {new} have no program or library{selection} in common: {len(builds[0].files)} in the first, "
            f"{len(builds[1].files)} in the second, {len(common)} with the same name",
            "pass two build directories of the same code, built for the same target; both from the same level: "
            "build and build-mlgo, not . and build-mlgo",
        )
    only_old, only_new = (tuple(sorted(a.files.keys() - b.files.keys())) for a, b in (builds, builds[::-1]))
    project = builds[1].name
    binaries = tuple(
        Binary(project, name, file.kind, file.language, VARIANT, before[name].sizes, file.sizes)
        for name, file in after.items()
    )
    return ComparedBuilds(binaries, *builds, before, after, only_old, only_new, tuple(different))


def _measure_both(name: str, old: Build, new: Build) -> tuple[MeasuredFile, MeasuredFile] | None:
    """Measure a file of two builds; None if it is damaged, or has different kinds or machines."""
    try:
        before, after = old.files[name](), new.files[name]()
    except UserError as error:
        say(f"left out: {error.problem}")
        return None
    if (before.kind, before.machine) != (after.kind, after.machine):
        say(f"left out: {name} of {old.path} and of {new.path} is not the same kind of file for the same machine")
        return None
    return before, after
