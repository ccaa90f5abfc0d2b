"""Rewrites the run-time search paths of programs that are moved out of the directory that they were built in.

A build system lets a program find its own shared libraries where it linked them (DT_RUNPATH, DT_RPATH). That place is
temporary here: the program would not start, and whoever makes a directory of that name could give it other libraries.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np

from components.core.compiler.objects.elf import ORDERS, Elf
from components.platform.errors import UserError

_DT_NULL, _DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 0, 1, 14, 15, 29
_FORMATS = {4: ("iI", 16), 8: ("qQ", 24)}
"""Bytes of an address -> an entry of .dynamic, and bytes of a symbol."""
_ORIGIN = "$ORIGIN"


def relocate_runpath(path: Path, built: Path, root: Path) -> bool:
    """Let a linked file search next to itself for what was in the build, and nowhere else below it.

    Args:
        path: the copy of the file, which is changed in place.
        built: where the file was built.
        root: directory of the build; entries below it become relative to $ORIGIN.

    Returns:
        Whether no entry is left that names a directory below `root`. An entry is left if its string in .dynstr also is
        the end of another one's.

    Raises:
        UserError: the file is damaged.
    """
    data = bytearray(path.read_bytes())
    elf = Elf(memoryview(data))
    strings, entries = elf.section(".dynstr"), _dynamic_entries(elf)
    if strings is None:
        return True
    table = bytes(strings)
    changed, complete = False, True
    for tag, start in entries:
        if tag not in (_DT_RPATH, _DT_RUNPATH):
            continue
        end = table.find(b"\0", start)
        if end < 0:
            raise UserError(f"{path}: a search path is not terminated", "build it again")
        old = os.fsdecode(table[start:end])
        new = _relocate(old, built, root)
        if new == old:
            continue
        encoded = os.fsencode(new)
        others = [value for other, value in entries if other in (_DT_NEEDED, _DT_SONAME)]
        others += _symbol_names(elf)
        if len(encoded) > end - start or any(start < other < end for other in others):
            complete = False
            continue
        strings[start:end] = encoded.ljust(end - start, b"\0")
        changed = True
    if changed:
        path.write_bytes(data)
    return complete


def needed_libraries(path: Path) -> frozenset[str]:
    """Return the names of the shared libraries that a linked file needs (DT_NEEDED). UserError if it is damaged."""
    elf = Elf(memoryview(path.read_bytes()))
    table = bytes(elf.section(".dynstr") or b"")
    return frozenset(
        os.fsdecode(table[start:].partition(b"\0")[0]) for tag, start in _dynamic_entries(elf) if tag == _DT_NEEDED
    )


def has_search_path(path: Path) -> bool:
    """Return whether a linked file says where its libraries are (DT_RPATH, DT_RUNPATH)."""
    return any(tag in (_DT_RPATH, _DT_RUNPATH) for tag, _ in _dynamic_entries(Elf(memoryview(path.read_bytes()))))


def _dynamic_entries(elf: Elf) -> list[tuple[int, int]]:
    """Return the tags and values of .dynamic."""
    dynamic = elf.section(".dynamic") or b""
    entry = struct.Struct(ORDERS[elf.byte_order] + _FORMATS[elf.address_bytes][0])
    entries = []
    for offset in range(0, len(dynamic) - entry.size + 1, entry.size):
        tag, value = entry.unpack_from(dynamic, offset)
        if tag == _DT_NULL:
            break
        entries.append((tag, value))
    return entries


def _relocate(search: str, built: Path, root: Path) -> str:
    """Return a list of directories with those below `root` relative to the directory of the file."""
    parts = []
    for part in search.split(":"):
        place = os.path.normpath(part) if part else part
        if part and os.path.isabs(place) and Path(place).is_relative_to(root):
            within = os.path.relpath(place, built.parent)
            part = _ORIGIN if within == "." else f"{_ORIGIN}/{within}"
        parts.append(part)
    return ":".join(dict.fromkeys(parts))


def _symbol_names(elf: Elf) -> list[int]:
    """Return the offsets in .dynstr of the names of dynamic symbols."""
    symbols = elf.section(".dynsym")
    if symbols is None:
        return []
    size = _FORMATS[elf.address_bytes][1]
    words = np.frombuffer(symbols[: len(symbols) // size * size], dtype=f"{ORDERS[elf.byte_order]}u4")
    offsets: list[int] = words[:: size // 4].tolist()
    return offsets
