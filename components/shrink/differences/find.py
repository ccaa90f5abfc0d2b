"""Finds what differs between the user's compiler and linker and those of a row, although the row builds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from components.shrink.differences.assembled import files_read_by_the_linker
from components.shrink.differences.compiler_names import chosen_lines, function_texts
from components.shrink.differences.ignored import (
    dropped_meaning,
    ignored_attributes,
    ignored_by_lto,
    ignored_options,
    replaced_levels,
)
from components.shrink.differences.linked_files import (
    defined_symbols,
    gcc_version,
    lost_search_paths,
    lost_sections,
    named_paths,
    uncalled_sections,
)
from components.shrink.differences.linker_scripts import lost_tables, scripts_with_differences
from components.shrink.differences.links import (
    differing_choices,
    mixed_instructions,
    replaced_functions,
    wrapped_functions,
)
from components.shrink.differences.order import moved_entries, moved_initializers
from components.shrink.differences.records import Call, LinkerCall, read_calls, read_linker_calls, read_readers
from components.shrink.differences.used_data import lost_used_data

_MAX_SHOWN = 3
_READS = "reads an object of LTO, which has no code and no sections yet"
_SIZES = "asks for sizes or addresses in an object of LTO, which has none yet"


@dataclass(frozen=True)
class Differences:
    """Sentences on what differs and where.

    Attributes:
        refused: for these the build is not delivered.
        notes: what the user should know of a delivered build.
    """

    refused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def refusal(self) -> str:
        """Why the build is not delivered; "" if it may be."""
        more = f"; and {len(self.refused) - _MAX_SHOWN} more" if len(self.refused) > _MAX_SHOWN else ""
        return "; ".join(self.refused[:_MAX_SHOWN]) + more


@dataclass(frozen=True)
class FinishedBuild:
    """A build by the compilers of a row, before its tree is removed.

    Attributes:
        records: what its compilers recorded.
        root: its tree.
        files: copies of what it linked.
        own: copies of what the user's own build linked.
        own_by_clang: whether the compiler of that build is a clang.
        dropped: options of the build that its compilers lack.
        lto: whether its objects are bitcode.
        interposable: whether C is compiled with gcc's default, by which programs may replace functions of libraries.
        gnu: whether its compiler is gcc, with GNU ld.
        cross_options: clang's options for the compilers whose names have a prefix.
    """

    records: Path
    root: Path
    files: Path
    own: Path
    clang: Path
    nm: Path
    dropped: Sequence[str] = ()
    lto: bool = False
    own_by_clang: bool = False
    interposable: bool = False
    gnu: bool = False
    cross_options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def find_differences(build: FinishedBuild) -> Differences:
    own, files, root, clang, nm = build.own, build.files, build.root, build.clang, build.nm
    calls, linkers = read_calls(build.records, build.dropped, build.cross_options), read_linker_calls(build.records)
    links: list[Call | LinkerCall] = [*(call for call in calls if call.links), *linkers]
    replaces_gcc = not build.gnu and not build.own_by_clang
    refused: list[str] = []
    notes: list[str] = []
    if replaces_gcc:
        inlining = [call for call in calls if not build.interposable or "+" in call.program]
        refused += [*ignored_options(calls).values(), *dropped_meaning(build.dropped)]
        refused += ignored_attributes(calls, clang, root)
        refused += replaced_functions(inlining, own, nm, root)
    if build.gnu and (text := mixed_instructions(calls)):
        refused.append(text)
    for choice in () if build.gnu else differing_choices(calls, clang, nm, root, linkers):
        # The own compiler's copy is from the same file then.
        if not (choice.foreign and choice.symbol in defined_symbols(own / choice.output, nm)):
            (refused if choice.refused else notes).append(choice.text)
    if build.lto:
        does = "changes an object of LTO, which the linker compiles again" if build.gnu else _READS
        for command in read_readers(build.records):
            by_nm = command.partition(" ")[0].rpartition("-")[2] == "nm"
            refused.append(f"{command} {_SIZES if by_nm else does}")
        refused += files_read_by_the_linker(calls, links, clang, root)
        refused += ignored_by_lto(calls, build.gnu)
    notes += replaced_levels(calls)
    refused += wrapped_functions(links, clang, nm, root, build.gnu)
    refused += scripts_with_differences(links, root, build.lto)
    refused += lost_tables(links, own, files, nm)
    for find in (lost_sections, uncalled_sections, lost_search_paths):
        refused += find(own, files)
    notes += [*moved_initializers(own, files, build.gnu and build.lto), *moved_entries(own, files)]
    notes += lost_used_data(calls, clang, nm, own, files)
    if named := named_paths(files, root):
        names = ", ".join(name for name, _ in named[:_MAX_SHOWN])
        path = named[0][1] or "its directory"
        notes.append(
            f"{names} names files of the copy that was built, which is gone, such as {path}: build it in your own tree "
            "if the program opens them"
        )
    if replaces_gcc and not refused:
        if gcc := gcc_version(own):
            notes += chosen_lines(calls, clang, root, gcc)
        notes += function_texts(calls, clang, root)
    return Differences(tuple(refused), tuple(notes))
