"""Finds linker scripts that mean something else for the objects of a row than for those of the user's own build."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from components.core.projects.flags.linked_files import find_binaries
from components.shrink.differences.linked_files import symbol_addresses
from components.shrink.differences.records import Call, LinkerCall, linker_words

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_NAMES_FILES = re.compile(r"EXCLUDE_FILE|[\w*?/.\[\]-]+\.(?:o|obj|lo|a)\b[\w*?:.]*\s*\(|[\w*?/.-]+\.a:[\w*?.-]+\s*\(")
_SCRIPT_OPTION = re.compile(r"(?:-T|-dT|--?(?:default-)?script)[,=]?(?P<file>.*)")
_INCLUDE = re.compile(r"\bINCLUDE\s+\"?([^\s\";]+)")
_SOURCES = (".c", ".cc", ".cpp", ".cxx", ".c++", ".C", ".s", ".S", ".sx", ".m", ".mm", ".rs", ".f", ".f90", ".go", ".h")
_MAX_BYTES = 1 << 20
_SECTIONS = (".text", ".data", ".rodata", ".bss")
_OF_OUTPUT = re.compile(r"\b(?:ADDR|ALIGNOF|LOADADDR|SIZEOF)\s*\([^()]*\)")
_INNERMOST = re.compile(r"\(([^()]*)\)")
_HERE = re.compile(r"\b(?P<name>[A-Za-z_.$][\w.$]*)\s*=\s*(?:\.|ABSOLUTE\s*\(\s*\.\s*\))\s*[;)]")
_OF_TOOLS = re.compile(
    r"\*.*|COMMON|\.text.*|\.(?:rodata|l?data|bss|tdata|tbss)(?:[.\w]*\*)?|\.data\.rel.*"
    r"|\.gnu.*|\.eh_frame.*|\.gcc_except.*|\.(?:(?:pre)?init|fini)_array.*|\.[cd]tors.*|\.init|\.fini|\.note.*"
    r"|\.got.*|\.plt.*|\.rela?.*|\.dyn.*|\.comment|\.debug.*"
)
"""Sections that compilers make, which may be smaller."""


def scripts_with_differences(links: Sequence[Call | LinkerCall], root: Path, lto: bool) -> Iterator[str]:
    """Yield sentences on the linker scripts of a build whose commands for sections name objects, if these are of LTO,
    or that have no place for the sections of single functions and variables.

    Args:
        root: the tree that was built, in whose place messages name none.
    """
    seen: set[Path] = set()
    for call in links:
        for path, text in _scripts(call, seen):
            name = str(path).removeprefix(f"{root}/")
            if lto and _NAMES_FILES.search(text):
                yield f"the linker script {name} names objects, of which LTO makes one"
            if section := _section_without_rest(text):
                yield (
                    f"the linker script {name} has a place for {section}, but none for {section}.NAME, which functions "
                    "and variables have of their own"
                )


def lost_tables(links: Sequence[Call | LinkerCall], own: Path, files: Path, nm: Path) -> Iterator[str]:
    """Yield sentences on the tables between two symbols of a linker script that are shorter than in the user's build,
    because nothing else names their entries: LTO or --gc-sections drops them.

    Args:
        own: what the user's own build linked.
        files: what the other linked.
        nm: LLVM's nm.
    """
    seen: set[Path] = set()
    tables = [(path, *ends) for call in links for path, text in _scripts(call, seen) for ends in _tables(text)]
    for name, path in sorted(find_binaries(own)) if tables else ():
        before, after = (symbol_addresses(one, nm) for one in (path, files / name))
        for script, begin, end in tables:
            if not {begin, end} <= before.keys() & after.keys():
                continue
            size, own_size = (values[end][0] - values[begin][0] for values in (after, before))
            if size < own_size and not before[end][1]:
                yield (
                    f"{name} has {size:,} bytes between {begin} and {end} of the linker script {script.name}, "
                    f"{own_size:,} in your build"
                )


def _tables(text: str) -> Iterator[tuple[str, str]]:
    """Yield the symbols that a script defines before and behind sections of own names."""
    places = list(_HERE.finditer(text))
    for begin, end in itertools.pairwise(places):
        words = [word for group in _groups(text[begin.end() : end.start()]) for word in re.findall(r"[^\s,]+", group)]
        patterns = [word for word in words if word[0] in "._" or word.isidentifier()]
        if patterns and not any(map(_OF_TOOLS.fullmatch, patterns)):
            yield begin["name"], end["name"]


def _groups(text: str) -> Iterator[str]:
    """Yield what is in each pair of parentheses, the innermost first."""
    while group := _INNERMOST.search(text):
        yield group[1]
        text = f"{text[: group.start()]} {group[1]} {text[group.end() :]}"


def _section_without_rest(text: str) -> str:
    """Return a section of which a script has a place for those of exactly this name only."""
    patterns = {word for group in _groups(_OF_OUTPUT.sub("", text)) for word in group.split()}
    for section in _SECTIONS:
        if section in patterns and not any(one.startswith(section) and "*" in one for one in patterns):
            return section
    return ""


def _scripts(call: Call | LinkerCall, seen: set[Path]) -> Iterator[tuple[Path, str]]:
    """Yield the linker scripts of a link that were not seen before, and their texts without comments."""
    words = [word.removeprefix("-Wl,") for word in linker_words(call.words)]
    pending = []
    for index, word in enumerate(words):
        if match := _SCRIPT_OPTION.fullmatch(word):
            pending.append(match["file"] or next(iter(words[index + 1 :]), ""))
        elif not word.startswith("-") and not word.endswith(_SOURCES):
            pending.append(word)
    while pending:
        path = Path(call.path(pending.pop()))
        if path in seen or not path.is_file() or path.stat().st_size > _MAX_BYTES:
            continue
        seen.add(path)
        content = path.read_bytes()
        if b"\0" in content or not re.search(rb"\bSECTIONS\b|\bINCLUDE\b", content):
            continue
        text = _COMMENT.sub("", content.decode("utf-8", "replace"))
        yield path, text
        pending += _INCLUDE.findall(text)
