"""Finds what sources choose by the name or the version of the compiler, and texts that compilers write differently.

A source that asks for gcc 7 has other lines for clang, which says that it is gcc 4.2. Clang preprocesses such sources
once more, as the gcc of the user's build.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from components.shrink.differences.preprocessed import SYSTEM, preprocess, preprocessed
from components.shrink.differences.records import Call

_CONDITIONS = re.compile(
    rb"^\s*#\s*(?:el)?if[^\n]*\b"
    rb"(?:__clang\w*__|__GNUC(?:_\w+)?__|__llvm__|__has_(?:feature|extension)|\w*GCC_VERSION\w*)\b",
    re.MULTILINE,
)
_FUNCTION_TEXTS = re.compile(rb"\b__PRETTY_FUNCTION__\b|\bfunction_name\s*\(")
_FUNCTION_TEXT = re.compile(r"(?<!__extension__ )\b__PRETTY_FUNCTION__\b|\bfunction_name\s*\(\s*\)")
_MARK = re.compile(r'#\s*(?:line\s+)?(\d+)\s+"((?:[^"\\]|\\.)*)"')
_OF_CLANG = re.compile(r".*/lib/clang/[^/]+/include/.*|<.*")
_UNDEFINED = tuple(
    f"-U{name}"
    for name in "__clang__ __clang_major__ __clang_minor__ __clang_patchlevel__ __clang_version__ __llvm__ "
    "__has_feature __has_extension".split()
)
_MAX_COMPILES = 100
"""Compiles that are looked into: each takes as long as preprocessing it twice."""


def chosen_lines(calls: Iterable[Call], clang: Path, root: Path, gcc: str) -> list[str]:
    """Return a sentence on the lines that the compiler's name or version chooses, if there are some.

    Args:
        clang: the compiler of the calls.
        root: the tree that was built, in whose place messages name none.
        gcc: version of the user's gcc.
    """
    options = (f"-fgnuc-version={gcc}", *_UNDEFINED)
    found: dict[str, int] = {}
    for call, text in itertools.islice(preprocessed(calls, clang, _CONDITIONS), _MAX_COMPILES):
        with call.with_saved_sources():
            by_gcc = _lines(call, preprocess(call, clang, options))
        by_clang = _lines(call, text)
        if by_gcc:  # else something failed
            for path, line in by_gcc.keys() ^ by_clang.keys():
                if not (by_gcc.get((path, line)) or by_clang[path, line]).startswith(("#", "_Static_assert")):
                    found[path] = min(line, found.get(path, line))
    if not found:
        return []
    path = min(found)
    more = f" and in {len(found) - 1} more files" if len(found) > 1 else ""
    where = f"{path.removeprefix(f'{root}/')}:{found[path]}{more}"
    return [f"#if chooses other code than for gcc {gcc}, by the compiler's name or version, at {where}"]


def function_texts(calls: Iterable[Call], clang: Path, root: Path) -> list[str]:
    """Return a sentence on the first use of a function's name with its types, which compilers write differently."""
    for call, text in preprocessed(calls, clang, _FUNCTION_TEXTS):
        for (path, line), content in _lines(call, text).items():
            if match := _FUNCTION_TEXT.search(content):
                where = f"{path.removeprefix(f'{root}/')}:{line}"
                return [f"clang writes the types in {match[0]} at {where} in another way than gcc"]
    return []


def _lines(call: Call, text: str) -> Mapping[tuple[str, int], str]:
    """Return the lines of a preprocessed text that are not of the system's headers, by file and number."""
    return {(path, line): content for path, line, content in _numbered(call, text)}


def _numbered(call: Call, text: str) -> Iterator[tuple[str, int, str]]:
    path, number, system = "", 0, True
    for content in text.splitlines():
        if mark := _MARK.match(content):
            path, number = call.path(mark[2]), int(mark[1]) - 1
            system = bool(SYSTEM.fullmatch(path) or _OF_CLANG.fullmatch(path) or mark[2].startswith("<"))
            continue
        number += 1
        if not system and content.strip():
            yield path, number, content.strip()
