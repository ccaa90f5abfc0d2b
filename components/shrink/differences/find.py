"""Finds what differs between the user's compiler and linker and those of a row, although the row builds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from components.shrink.differences.ignored import dropped_meaning, ignored_attributes, ignored_options
from components.shrink.differences.linked_files import defined_symbols, lost_sections, made_by_clang, named_paths
from components.shrink.differences.links import differing_choices, mixed_instructions, replaced_functions
from components.shrink.differences.records import Call, read_calls, read_readers
from components.shrink.differences.used_data import lost_used_data

_MAX_SHOWN = 3
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_NAMES_FILES = re.compile(r"EXCLUDE_FILE|[\w*?/.\[\]-]+\.(?:o|obj|lo|a)\b[\w*?:.]*\s*\(|[\w*?/.-]+\.a:[\w*?.-]+\s*\(")
_SCRIPT_OPTION = re.compile(r"(?:-Wl,)?(?:-T|--script)[,=]?(?P<file>.*)")


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
        clang: its compiler.
        nm: LLVM's nm.
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
    interposable: bool = False
    gnu: bool = False
    cross_options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def find_differences(build: FinishedBuild) -> tuple[Difference, ...]:
    """Return what differs between a build by the compilers of a row and the user's own build."""
    calls = read_calls(build.records, build.dropped, build.cross_options)
    return tuple(_find(build, calls))


def _find(build: FinishedBuild, calls: Sequence[Call]) -> Iterator[Difference]:
    if not build.gnu and not made_by_clang(build.own):
        for text in [*ignored_options(calls).values(), *dropped_meaning(build.dropped)]:
            yield Difference(text)
        texts = ignored_attributes(calls, build.clang, build.root)
        for text in [*texts, *_replaced(build, calls)]:
            yield Difference(text)
    if build.gnu and (text := mixed_instructions(calls)):
        yield Difference(text)
    for choice in () if build.gnu else differing_choices(calls, build.clang, build.nm, build.root):
        own = build.own / choice.output
        # The own compiler's copy is from the same file then.
        if not (choice.foreign and choice.symbol in defined_symbols(own, build.nm)):
            yield Difference(choice.text)
    if build.lto and not build.gnu:
        for command in read_readers(build.records):
            yield Difference(f"{command} reads an object of LTO, which has no code and no sections yet")
        for name in _scripts_with_files(calls, build.root):
            yield Difference(f"the linker script {name} names objects, of which LTO makes one")
    for text in lost_sections(build.own, build.files):
        yield Difference(text)
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


def _scripts_with_files(calls: Sequence[Call], root: Path) -> Iterator[str]:
    """Yield the linker scripts of the build whose commands for sections name objects."""
    seen = set()
    for call in calls:
        if not call.links:
            continue
        words = [part for word in call.arguments.words for part in _split(word)]
        for index, word in enumerate(words):
            match = _SCRIPT_OPTION.fullmatch(word)
            name = (match["file"] or next(iter(words[index + 1 :]), "")) if match else word
            if not match and (word.startswith("-") or not word.endswith((".ld", ".lds", ".x", ".script"))):
                continue
            path = Path(call.path(name))
            if path in seen or not path.is_file():
                continue
            seen.add(path)
            if _NAMES_FILES.search(_COMMENT.sub("", path.read_text(encoding="utf-8", errors="replace"))):
                yield str(path).removeprefix(f"{root}/")


def _split(word: str) -> list[str]:
    return word.removeprefix("-Wl,").split(",") if word.startswith("-Wl,") else [word]
