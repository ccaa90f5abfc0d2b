"""Preprocesses the sources of a build that have a text, and reads the attributes in what is left."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from components.core.projects.driver_arguments import without_outputs
from components.shrink.differences.records import Call

# Debian's cross compilers have /usr/TRIPLE/include.
SYSTEM = re.compile(r"/usr/(?:lib|(?:(?!local/)[^/]+/)?include)/.*")
_OTHER_ACTIONS = ("-c", "-S", "-E", "-M", "-MM", "-P", "-v", "-H")
_LITERAL_OR_LIST = re.compile(
    r'"(?:[^"\\\n]|\\.)*"'
    r"|'(?:[^'\\\n]|\\[^\n]{1,9}?)'"
    r"|(?P<list>\b__attribute(?:__)?\s*\(\s*\(|\[\[)"
)
_LINE = re.compile(r'^#\s*(?:line\s+)?(\d+)\s+"((?:[^"\\]|\\.)*)"', re.MULTILINE)
_GNU = re.compile(r"\b(?:__)?gnu(?:__)?\s*::$")
_USING_GNU = re.compile(r"\s*using\s+(?:__)?gnu(?:__)?\s*:")
_MAX_LIST = 10_000


@dataclass(frozen=True)
class AttributeList:
    """A list of attributes, as __attribute__((...)) or [[...]].

    Attributes:
        content: what is between the parentheses or brackets.
        standard: whether it has brackets.
        start, end: where it stands in the text.
    """

    content: str
    standard: bool
    start: int
    end: int

    def has_name_at(self, at: int) -> bool:
        """Return whether what stands at a place of the content is the name of an attribute of GNU."""
        before = self.content[:at].rstrip()
        if self.standard:
            return bool(_GNU.search(before) or _USING_GNU.match(self.content))
        return not before or before[-1] == ","


def preprocessed(calls: Iterable[Call], clang: Path, mentioned: re.Pattern[bytes]) -> Iterator[tuple[Call, str]]:
    """Yield compiles and their preprocessed sources, if the sources, headers that are not the system's, or the command
    line have a text.
    """

    @cache
    def mentions(path: str) -> bool:
        try:
            return mentioned.search(Path(path).read_bytes()) is not None
        except OSError:
            return False

    for call in calls:
        if not call.compiles_text or call.arguments.other not in ("", "it writes assembly"):
            continue
        words = " ".join(call.arguments.words).encode("utf-8", "replace")
        files = (*call.sources, *(path for path in call.headers if not SYSTEM.fullmatch(path)))
        stdin = [str(call.stdin)] if call.stdin else []
        saved = any(mentioned.search(os.fsencode(content)) for content in call.saved.values())
        if saved or mentioned.search(words) or any(map(mentions, [*files, *stdin])):
            with call.with_saved_sources():
                yield call, preprocess(call, clang)


def preprocess(call: Call, clang: Path, options: Sequence[str] = ()) -> str:
    """Return what a compile reads, by clang with more options."""
    linked = {name for name, _ in call.arguments.inputs if name != "-" and call.path(name) not in call.sources}
    words = without_outputs(call.arguments.words)
    kept = [word for word in words if word not in linked and word not in _OTHER_ACTIONS]
    return call.run_clang(clang, [*kept, *options, "-E"], "replace").stdout


def attribute_lists(text: str) -> Iterator[AttributeList]:
    """Yield the lists of attributes in a preprocessed source, but for those in strings."""
    for match in _LITERAL_OR_LIST.finditer(text):
        if match["list"]:
            standard = match["list"] == "[["
            content = balanced(text, match.end(), "[]" if standard else "()")
            yield AttributeList(content, standard, match.start(), match.end() + len(content) + 2)


def places(text: str) -> Callable[[int], str]:
    """Return a function that says of a place in a preprocessed source which file and line it is of."""
    marks = [(match.start(), int(match[1]), match[2]) for match in _LINE.finditer(text)]

    def place(at: int) -> str:
        start, line, name = next((mark for mark in reversed(marks) if mark[0] <= at), (0, 0, "<stdin>"))
        return f"{name}:{line + text.count(chr(10), start, at) - 1}"

    return place


def balanced(text: str, start: int, pair: str = "()") -> str:
    """Return the text from `start` to the parenthesis or bracket that closes the one before it."""
    depth = 1
    for at in range(start, min(len(text), start + _MAX_LIST)):
        if text[at] == pair[0]:
            depth += 1
        elif text[at] == pair[1]:
            depth -= 1
            if depth == 0:
                return text[start:at]
    return ""
