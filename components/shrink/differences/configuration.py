"""Reads what the configuration of a build defines, which depends on the compiler that its checks find."""

from __future__ import annotations

import filecmp
import os
import re
from collections.abc import Iterator
from pathlib import Path

_HEADERS = (".h", ".hh", ".hpp", ".hxx", ".inc")
_COMMANDS = ("flags.make", "build.ninja", "compile_commands.json")
"""Files in which CMake and Meson write the options of compiles."""
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)\b(?![ \t]+0[ \t]*$)", re.MULTILINE)
_OPTION = re.compile(r"(?<![\w-])-D(\w+)\b(?!=0(?!\w))")
"""Macros, but for those that are 0, as #cmakedefine01 and Autoconf's AC_CHECK_DECLS write what is missing."""
_MAX_BYTES = 16 << 20


def defined_names(root: Path, source: Path, log: Path) -> frozenset[str]:
    """Return the macros that headers and options of a build define which the build itself wrote, or shows in its log.

    Args:
        root: the tree that was built.
        source: the user's tree, of which it was a copy.
        log: output of the build.
    """
    names = set(_OPTION.findall(log.read_text(encoding="utf-8", errors="replace")))
    for path, pattern in _written(root, source):
        names.update(pattern.findall(path.read_text(encoding="utf-8", errors="replace")))
    return frozenset(names)


def _written(root: Path, source: Path) -> Iterator[tuple[Path, re.Pattern[str]]]:
    for directory, _, files in os.walk(root):
        for name in files:
            pattern = _DEFINE if name.endswith(_HEADERS) else _OPTION if name in _COMMANDS else None
            path = Path(directory, name)
            if pattern is None or not path.is_file() or path.stat().st_size > _MAX_BYTES:
                continue
            original = source / path.relative_to(root)
            if not original.is_file() or not filecmp.cmp(original, path, shallow=False):
                yield path, pattern
