"""Finds what differs between the user's compiler and linker and those of a row, although the row builds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
class Difference:
    """One difference.

    Attributes:
        text: what it is and where.
        refused: whether the build is not delivered; a note otherwise.
    """

    text: str
    refused: bool = True


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


def find_differences(build: FinishedBuild) -> tuple[Difference, ...]:
    """Return what differs between a build by the compilers of a row and the user's own build."""
    calls = read_calls(build.records, build.dropped, build.cross_options)
    found = tuple(_find(build, calls, read_linker_calls(build.records)))
    if build.gnu or build.own_by_clang or refusal(found):
        return found
    gcc = gcc_version(build.own)
    texts = chosen_lines(calls, build.clang, build.root, gcc) if gcc else []
    texts += function_texts(calls, build.clang, build.root)
    return (*found, *(Difference(text, refused=False) for text in texts))


def _find(build: FinishedBuild, calls: Sequence[Call], linkers: Sequence[LinkerCall]) -> Iterator[Difference]:
    links: list[Call | LinkerCall] = [*(call for call in calls if call.links), *linkers]
    if not build.gnu and not build.own_by_clang:
        for text in [*ignored_options(calls).values(), *dropped_meaning(build.dropped)]:
            yield Difference(text)
        texts = ignored_attributes(calls, build.clang, build.root)
        for text in [*texts, *_replaced(build, calls)]:
            yield Difference(text)
    if build.gnu and (text := mixed_instructions(calls)):
        yield Difference(text)
    for choice in () if build.gnu else differing_choices(calls, build.clang, build.nm, build.root, linkers):
        own = build.own / choice.output
        # The own compiler's copy is from the same file then.
        if not (choice.foreign and choice.symbol in defined_symbols(own, build.nm)):
            yield Difference(choice.text, choice.refused)
    if build.lto:
        does = "changes an object of LTO, which the linker compiles again" if build.gnu else _READS
        for command in read_readers(build.records):
            by_nm = command.partition(" ")[0].rpartition("-")[2] == "nm"
            yield Difference(f"{command} {_SIZES if by_nm else does}")
        for text in files_read_by_the_linker(calls, links, build.clang, build.root):
            yield Difference(text)
        for text in ignored_by_lto(calls, build.gnu):
            yield Difference(text)
    for text in replaced_levels(calls):
        yield Difference(text, refused=False)
    for text in wrapped_functions(links, build.clang, build.nm, build.root, build.gnu):
        yield Difference(text)
    for text in scripts_with_differences(links, build.root, build.lto):
        yield Difference(text)
    for text in lost_tables(links, build.own, build.files, build.nm):
        yield Difference(text)
    for find in (lost_sections, uncalled_sections, lost_search_paths):
        for text in find(build.own, build.files):
            yield Difference(text)
    reverses = build.gnu and build.lto
    for text in [*moved_initializers(build.own, build.files, reverses), *moved_entries(build.own, build.files)]:
        yield Difference(text, refused=False)
    for text in lost_used_data(calls, build.clang, build.nm, build.own, build.files):
        yield Difference(text, refused=False)
    if named := named_paths(build.files, build.root):
        names = ", ".join(name for name, _ in named[:_MAX_SHOWN])
        path = named[0][1] or "its directory"
        text = f"{names} names files of the copy that was built, which is gone, such as {path}"
        yield Difference(f"{text}: build it in your own tree if the program opens them", refused=False)


def _replaced(build: FinishedBuild, calls: Sequence[Call]) -> list[str]:
    inlining = [call for call in calls if not build.interposable or "+" in call.program]
    return replaced_functions(inlining, build.own, build.nm, build.root)


def refusal(differences: Sequence[Difference]) -> str:
    """Return why a build with these differences is not delivered; "" if it may be."""
    texts = [one.text for one in differences if one.refused]
    more = f"; and {len(texts) - _MAX_SHOWN} more" if len(texts) > _MAX_SHOWN else ""
    return "; ".join(texts[:_MAX_SHOWN]) + more


def notes(differences: Sequence[Difference]) -> list[str]:
    """Return what the user should know of a delivered build."""
    return [one.text for one in differences if not one.refused]
