"""Finds linker scripts that mean something else for the objects of a row than for those of the user's own build."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from components.shrink.differences.links import words_of
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


def _section_without_rest(text: str) -> str:
    """Return a section of which a script has a place for those of exactly this name only."""
    text = _OF_OUTPUT.sub("", text)
    patterns: set[str] = set()
    while group := _INNERMOST.search(text):
        patterns.update(group[1].split())
        text = f"{text[: group.start()]} {group[1]} {text[group.end() :]}"
    for section in _SECTIONS:
        if section in patterns and not any(one.startswith(section) and "*" in one for one in patterns):
            return section
    return ""


def _scripts(call: Call | LinkerCall, seen: set[Path]) -> Iterator[tuple[Path, str]]:
    """Yield the linker scripts of a link that were not seen before, and their texts without comments."""
    words = [word.removeprefix("-Wl,") for word in linker_words(words_of(call))]
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
