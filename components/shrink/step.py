"""Tries builds of the user's code, delivers the smallest that works, and says how to build it."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from components.core.formats.toolchain import Toolchain
from components.core.objectives.size import reduction_percent
from components.core.projects.flags.build_variants import BuildVariant, find_stock_clang
from components.core.projects.flags.builds import BuildSetup, describe_failure, find_binutils, write_tools
from components.core.projects.flags.rows import FlagRow
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.cache import default_cache_dir
from components.shrink.build import BuiltFiles, UserBuild, are_alike, lost_exports, weaker_exports
from components.shrink.rows import OWN, shrink_rows
from components.shrink.source_copy import remove_tree
from components.shrink.types import FileSizes, ShrinkReport, TriedBuild

COMPILERS, FILES = "compilers", "files"
"""Directories of the output: compilers with the flags of the delivered build, and what it linked."""
_SAME_COMPILERS = (
    "the build makes the same files whatever CC, CXX and the compilers first in PATH are, so it calls others by their "
    "paths: include its configure step in the command, or let it use $CC and $CXX"
)


@dataclass(frozen=True)
class _Attempt:
    """A build that was tried: its row, None for the user's own, and what it linked, None if it may not be used."""

    entry: TriedBuild
    row: FlagRow | None = None
    built: BuiltFiles | None = None


def shrink(build: UserBuild, release: Toolchain, jobs: int, output: Path, directory: Path) -> ShrinkReport:
    """Build the user's code by the user's compilers and by those of each row, and keep the smallest result.

    A row that does not build, whose check fails, or whose files export less than those of the user's own build is not
    used. If none is smaller, the user's own build is the result.

    Args:
        output: the published directory, which messages name; it is not copied.
        directory: its directory until then; gets COMPILERS and FILES.

    Raises:
        UserError: the user's own build or check fails, the compilers are missing, or the disk is full.
    """
    build.source.check(build.shown)
    rows = shrink_rows(release)
    stock = find_stock_clang(release, None)
    binutils = find_binutils(stock)
    if left_out := build.source.build_directories():
        say(
            f"left out of the copy, with their options: {', '.join(left_out[:5])}, configured for other compilers; "
            "pass a command that configures if the options matter"
        )
    work = Path(tempfile.mkdtemp(prefix="mlgo-shrink-"))
    setup = BuildSetup(work / "build", default_cache_dir(), jobs, binutils)
    setup.work.mkdir()
    omitted = (output, directory)
    total = 1 + len(rows)
    try:
        say(f"build 1 of {total}: {build.source.name} by your own compilers: {build.shown}")
        own = build.build(OWN, None, setup, work / OWN, omitted)
        say(f"{OWN}: {own.stripped:,} bytes")
        tries = [_Attempt(_entry(OWN, "your build as it is", own), None, own)]
        if all(file.kind == "static library" for file in own.files.values()):
            say("the build makes static libraries only: they are compiled file by file")
            rows = [row for row in rows if not row.lto]
        for number, row in enumerate(rows, 2):
            variant = row.variant("policy", stock, release)
            say(f"build {number} of {total}: {build.source.name} by {variant.title}: {row.gives}")
            tries.append(_try(build, row, variant, setup, work / row.name, omitted, own, output))
        chosen = min((one for one in tries if one.built is not None), key=lambda one: one.entry.stripped)
        assert chosen.built is not None
        shutil.copytree(work / chosen.entry.name, directory / FILES, symlinks=True)
        if chosen.row is not None:
            (directory / COMPILERS).mkdir()
            write_tools(
                directory / COMPILERS, chosen.row.variant("policy", stock, release), setup, chosen.built.dropped
            )
        saved = reduction_percent(own.stripped, chosen.entry.stripped) or 0.0
        return ShrinkReport(
            command=build.shown,
            check=build.check,
            chosen=chosen.entry.name,
            reduction_percent=saved,
            kinds={name: file.kind for name, file in chosen.built.files.items()},
            builds=[one.entry for one in tries],
            why="" if chosen.row is not None else _why_nothing(tries),
            notes=_notes(own, chosen.built),
        )
    finally:
        remove_tree(work)


def _try(
    build: UserBuild,
    row: FlagRow,
    variant: BuildVariant,
    setup: BuildSetup,
    kept: Path,
    omitted: tuple[Path, ...],
    own: BuiltFiles,
    output: Path,
) -> _Attempt:
    try:
        built = build.build(row.name, variant, setup, kept, omitted)
    except UserError as error:
        say(f"{row.name} is not used: {describe_failure(error).rstrip(':')}; {error.remedy}")
        return _Attempt(_entry(row.name, row.gives, None, failure=describe_failure(error).rstrip(":")), row)
    entry = _entry(row.name, row.gives, built, _build_line(output / COMPILERS, row))
    if failure := _SAME_COMPILERS if are_alike(own, built) else lost_exports(own, built):
        entry.failure = failure
        say(f"{row.name} is not used: {failure}")
        return _Attempt(entry, row)
    say(f"{row.name}: {built.stripped:,} bytes, {100 * (built.stripped / own.stripped - 1):+.1f}%")
    return _Attempt(entry, row, built)


def _entry(name: str, gives: str, built: BuiltFiles | None, line: str = "", failure: str = "") -> TriedBuild:
    if built is None:
        return TriedBuild(name=name, gives=gives, failure=failure)
    files = {path: FileSizes(stripped=file.stripped, text=file.text) for path, file in built.files.items()}
    return TriedBuild(
        name=name,
        gives=gives,
        build=line,
        files=files,
        stripped=built.stripped,
        text=built.text,
        failure=failure,
        dropped=list(built.dropped),
    )


def _build_line(compilers: Path, row: FlagRow) -> str:
    """Return what makes a shell's build use the compilers. They have names without a path, which may have spaces."""
    words = {"PATH": f"{compilers}:$PATH", "CC": "clang", "CXX": "clang++"}
    if row.lto:  # GNU's need a plugin for the objects
        words |= {name.upper(): name for name in ("ar", "nm", "ranlib")}
    words["JOBS"] = "$(nproc)"
    return "export " + " ".join(f'{name}="{value}"' for name, value in words.items())


def _notes(own: BuiltFiles, delivered: BuiltFiles) -> list[str]:
    """Return what differs although the build is delivered."""
    notes = []
    lost, unique = weaker_exports(own, delivered)
    if lost:
        notes.append(
            f"shared libraries export {lost} weak symbols less, copies of inline functions and templates: build what "
            "links with them again"
        )
    if unique:
        notes.append(
            f"{unique} variables of inline functions are unique in a process by gcc only: plugins that are opened with "
            "RTLD_LOCAL get their own"
        )
    if delivered.dropped:
        notes.append(f"built without {' '.join(delivered.dropped)}, which clang does not have")
    if delivered.unmoved:
        notes.append(f"{', '.join(delivered.unmoved)} search for libraries where the build ran: build them again")
    return notes


def _why_nothing(tries: list[_Attempt]) -> str:
    own, *others = tries
    if failed := [one.entry for one in others if one.built is None]:
        names: dict[str, list[str]] = {}
        for entry in failed:
            names.setdefault(entry.failure, []).append(entry.name)
        reasons = "; ".join(f"{', '.join(builds)}: {reason}" for reason, builds in names.items())
        if len(failed) == len(others):
            return f"no other build can be used: {reasons}"
    smallest = min(one.entry.stripped for one in others if one.built is not None)
    return (
        f"your build is the smallest: {own.entry.stripped:,} bytes, the best of the others {smallest:,}. It may be "
        "compiled for size and linked as one program already"
    )
