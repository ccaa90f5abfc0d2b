"""Attributes the bytes of Mach-O and COFF objects to functions, whose symbols have no sizes there.

A function, or a block of unwind data, begins at its symbol or at a place that refers to it, and ends where the next one
begins. Tables that follow the code of a function, such as jump tables, are therefore the function's, and so is padding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from components.core.compiler.objects.elf import MAX_NAMES_PER_BYTE, MAX_SHARED_NAMES_BYTES, ElfError
from components.core.compiler.objects.function_sizes import FunctionSizes

TEXT, UNWIND, EXCEPTIONS, READ_ONLY = ".text", ".eh_frame", ".gcc_except_table", ".rodata"
"""Kinds of bytes, by the names that ELF's sections have; FunctionSizes.sections."""


class ObjectError(ElfError):
    """The data is not a readable Mach-O or COFF object; the message says why."""


def take(data: memoryview, offset: int, size: int, what: str) -> memoryview:
    """Return a part of a file. ObjectError if it ends before."""
    if offset < 0 or size < 0 or offset + size > len(data):
        raise ObjectError(f"the object ends inside {what}")
    return data[offset : offset + size]


class Strings:
    """Names in a part of a file, each with a zero byte at its end; other encodings as surrogates."""

    def __init__(self, data: memoryview) -> None:
        self._data = bytes(data) + b"\0"
        self._left = MAX_NAMES_PER_BYTE * len(self._data) + MAX_SHARED_NAMES_BYTES

    def at(self, offset: int, what: str) -> str:
        """Return the name at an offset. ObjectError if there is none, or if names share bytes too often."""
        if not 0 <= offset < len(self._data) - 1:
            raise ObjectError(f"the object has {what} outside of its strings")
        name = self._data[offset : self._data.index(b"\0", offset)]
        self._left -= len(name)
        if self._left < 0:
            raise ObjectError(f"the names of this object have too many bytes for its {len(self._data) - 1} of strings")
        return name.decode("utf-8", "surrogateescape")


def check_overlap(data: memoryview, parts: Iterable[tuple[int, int]]) -> None:
    """Raise an ObjectError if parts of a file overlap so much that reading all takes far more time than its size.

    Args:
        parts: offset and bytes of each; `take` refuses those that the file does not have.
    """
    if (total := sum(size for offset, size in parts if offset + size <= len(data))) > len(data):
        raise ObjectError(f"its sections overlap: they have {total} bytes, but the file has {len(data)} bytes")


@dataclass
class Attribution:
    """Bytes of an object by function and kind, while they are found.

    Attributes:
        total: kind -> bytes of all sections of this kind.
    """

    total: dict[str, int] = field(default_factory=lambda: dict.fromkeys((TEXT, UNWIND, EXCEPTIONS, READ_ONLY), 0))
    _entries: dict[tuple[int, int], int] = field(default_factory=dict)
    _bytes: list[dict[str, int]] = field(default_factory=list)
    _names: list[str] = field(default_factory=list)
    _by_name: dict[str, int] = field(default_factory=dict)
    _weak: list[bool] = field(default_factory=list)
    _entry: list[int] = field(default_factory=list)

    def function(self, section: int, offset: int, names: Iterable[tuple[str, bool]], size: int) -> int:
        """Add a function, whose `names` say whether each is weak, and return its entry."""
        entry = len(self._bytes)
        self._entries[section, offset] = entry
        self._bytes.append({TEXT: size})
        for name, weak in names:
            self._names.append(name)
            self._by_name.setdefault(name, entry)
            self._weak.append(weak)
            self._entry.append(entry)
        return entry

    def part(self, section: int, offset: int, entry: int, size: int) -> None:
        """Add a further part of a function's code, which begins there."""
        self._entries[section, offset] = entry
        self.add(entry, TEXT, size)

    def entry_at(self, section: int, offset: int) -> int | None:
        """Return the entry of the function that begins there, None if none does."""
        return self._entries.get((section, offset))

    def entry_of(self, name: str) -> int | None:
        """Return the entry of a function by its name."""
        return self._by_name.get(name)

    def add(self, entry: int, kind: str, size: int) -> None:
        """Count bytes of a kind for a function."""
        self._bytes[entry][kind] = self._bytes[entry].get(kind, 0) + size

    def add_blocks(self, owners: Mapping[int, int], end: int, kind: str) -> None:
        """Count the blocks of a section for their functions.

        Args:
            owners: begin of a block -> entry; -1 for a block of no function.
        """
        if max(owners, default=0) > end:
            raise ObjectError("the object has a block of unwind data outside of its section")
        for begin, following in pairwise([*sorted(owners), end]):
            if owners[begin] >= 0:
                self.add(owners[begin], kind, following - begin)

    def result(self) -> FunctionSizes:
        """Return the sizes; what belongs to no function is the remainder."""

        def column(kind: str) -> NDArray[np.int64]:
            return np.array([sizes.get(kind, 0) for sizes in self._bytes], np.int64)

        left = {kind: size - int(column(kind).sum()) for kind, size in self.total.items()}
        if min(left.values()) < 0:
            raise ObjectError("the function tables of this object overlap")
        return FunctionSizes(
            names=self._names,
            weak=np.array(self._weak, np.bool_),
            entry=np.array(self._entry, np.int32),
            instructions=column(TEXT),
            unwind=column(UNWIND),
            exceptions=column(EXCEPTIONS),
            jump_tables=column(READ_ONLY),
            remainder={kind: size for kind, size in left.items() if size},
            sections=dict(self.total),
            text_size_bytes=sum(self.total.values()),
        )
