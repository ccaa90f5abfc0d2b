"""Reads COFF objects: sections, text size, sizes of functions with their unwind data (Microsoft's PE format).

The text size is that of the sections that a program maps and does not write: code, .rdata, .pdata and .xdata.
"""

from __future__ import annotations

import re
import struct
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from components.core.compiler.objects.code_bytes import (
    READ_ONLY,
    TEXT,
    UNWIND,
    Attribution,
    ObjectError,
    Strings,
    check_overlap,
    take,
)
from components.core.compiler.objects.function_sizes import FunctionSizes

MACHINES = {0x14C: "i386", 0x8664: "x86-64", 0xAA64: "AArch64"}
"""IMAGE_FILE_MACHINE_* that are known."""
_I386, _AARCH64 = 0x14C, 0xAA64
_CODE, _COMDAT, _WRITABLE, _MANY_RELOCATIONS = 0x20, 0x1000, 0x80000000, 0x01000000
_NOT_MAPPED = 0x200 | 0x800 | 0x02000000  # LNK_INFO, LNK_REMOVE, MEM_DISCARDABLE
_FUNCTION = 0x20
_FUNCLET = re.compile(r"\?(?:dtor|catch|filt|fin)\$\d+@\?\d+\?(.+)@4HA")
"""Name of a part of a function that runs while an exception unwinds it."""
_UNWIND_TABLE = re.compile(r"\$(?:cppxdata|ip2state|stateUnwindMap|tryMap|handlerMap\$\d+|unwind|chain\$\d+)\$(.+)")


@dataclass(frozen=True)
class _Section:
    name: str
    size: int
    offset: int
    relocations: tuple[int, int]  # offset in the file, number
    flags: int

    @property
    def base(self) -> str:
        """The name without what MinGW appends: .text$_Z1fv."""
        return self.name.partition("$")[0]


@dataclass(frozen=True)
class _Symbol:
    name: str
    value: int
    section: int
    is_function: bool


class Coff:
    """A COFF object.

    Raises:
        ObjectError: it is damaged.
    """

    EMBEDDED: ClassVar = (".llvmbc", ".llvmcmd")

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        header = struct.unpack("<2H3I2H", take(self._data, 0, 20, "its header"))
        self.machine, sections, _time, self._symbols_at, self._symbol_count, optional, _flags = header
        if self.machine not in MACHINES:
            raise ObjectError(f"the machine {self.machine:#x} of this COFF object is not supported")
        at = self._symbols_at + 18 * self._symbol_count
        self._strings = Strings(self._data[at:] if self._symbols_at else memoryview(b""))
        self._sections = [self._read_section(20 + optional + 40 * number) for number in range(sections)]
        check_overlap(self._data, ((section.offset, section.size) for section in self._sections if section.offset))
        relocations = (section.relocations for section in self._sections)
        check_overlap(self._data, ((first, count * 10) for first, count in relocations))

    def _read_section(self, at: int) -> _Section:
        row = struct.unpack("<8s6I2HI", take(self._data, at, 40, "its sections"))
        name, _size, _address, size, offset, first, _lines, count, _line_count, flags = row
        if flags & _MANY_RELOCATIONS and count == 0xFFFF:
            (count,) = struct.unpack("<I", take(self._data, first, 4, "its relocations"))
        text = name.partition(b"\0")[0].decode("utf-8", "replace")
        if text.startswith("/") and text[1:].isdecimal():
            text = self._strings.at(int(text[1:]), "a section's name")
        return _Section(text, size, offset, (first, count), flags)

    def contents(self, name: str) -> memoryview | None:
        """Return the content of the sections of this name; None if there is none."""
        parts = [self._content(section) for section in self._sections if section.name == name]
        return None if not parts else parts[0] if len(parts) == 1 else memoryview(b"".join(parts))

    def _content(self, section: _Section) -> memoryview:
        if not section.offset:  # only zeros
            return memoryview(b"")
        return take(self._data, section.offset, section.size, f"the section {section.name}")

    def text_size(self) -> int:
        """Return the size of the text in bytes."""
        return sum(section.size for section in self._sections if self._kind(section))

    def _kind(self, section: _Section) -> str:
        """Return the kind of a section's bytes, "" for what does not count."""
        if section.flags & (_WRITABLE | _NOT_MAPPED) or section.name.startswith(".llvm"):
            return ""
        if section.flags & _CODE:
            return TEXT
        return UNWIND if section.base in (".pdata", ".xdata") else READ_ONLY

    def function_sizes(self) -> FunctionSizes:
        """Attribute the bytes of text to functions."""
        found = Attribution()
        for section in self._sections:
            if kind := self._kind(section):
                found.total[kind] += section.size
        symbols = self._read_symbols()
        functions: dict[int, list[_Symbol]] = defaultdict(list)
        for symbol in symbols:
            if symbol.is_function:
                functions[symbol.section].append(symbol)
        for number, section in enumerate(self._sections, 1):
            if self._kind(section) == TEXT:
                self._attribute_code(found, number, section, functions[number])
        self._attribute_unwind(found, symbols)
        return found.result()

    def _attribute_code(self, found: Attribution, number: int, section: _Section, functions: list[_Symbol]) -> None:
        names: dict[int, list[str]] = defaultdict(list)
        for symbol in functions:
            if symbol.value < section.size:
                names[symbol.value].append(symbol.name)
        weak = bool(section.flags & _COMDAT)
        for begin, following in pairwise([*sorted(names), section.size]):
            parents = [match[1] for name in names[begin] if (match := _FUNCLET.fullmatch(name))]
            parent = found.entry_of(parents[0]) if parents else None
            if parent is None:
                found.function(number, begin, [(self._plain(name), weak) for name in names[begin]], following - begin)
            else:
                found.part(number, begin, parent, following - begin)

    def _plain(self, name: str) -> str:
        """Return a function's name in the module: C's have an underscore in 32-bit objects."""
        return name.removeprefix("_") if self.machine == _I386 else name

    def _read_symbols(self) -> list[_Symbol]:
        rows = take(self._data, self._symbols_at, 18 * self._symbol_count, "its symbols")
        self._by_index: dict[int, _Symbol] = {}
        skip = 0
        for index, row in enumerate(struct.iter_unpack("<8sIhHBB", rows)):
            if skip:
                skip -= 1
                continue
            short, value, section, kind, _storage, skip = row
            name = short.partition(b"\0")[0].decode("utf-8", "surrogateescape")
            if short[:4] == b"\0\0\0\0":
                name = self._strings.at(int.from_bytes(short[4:], "little"), "a symbol's name")
            self._by_index[index] = _Symbol(name, value, section, kind == _FUNCTION)
        return [symbol for symbol in self._by_index.values() if symbol.section > 0]

    def _attribute_unwind(self, found: Attribution, symbols: list[_Symbol]) -> None:
        step = 8 if self.machine == _AARCH64 else 12
        blocks: dict[int, dict[int, int]] = defaultdict(dict)
        for section in self._sections:
            if section.base != ".pdata":
                continue
            content = self._content(section)
            targets = self._targets(section, content)
            for at in range(0, len(content) - step + 1, step):
                begin, data = targets.get(at), targets.get(at + step - 4)
                entry = found.entry_at(*begin) if begin else None
                if entry is None:
                    continue
                found.add(entry, UNWIND, step)
                if data:
                    blocks[data[0]][data[1]] = entry
        for symbol in symbols:
            match = _UNWIND_TABLE.fullmatch(symbol.name)
            entry = found.entry_of(match[1]) if match else None
            if entry is not None:
                blocks[symbol.section].setdefault(symbol.value, entry)
        for number, owners in blocks.items():
            if 0 < number <= len(self._sections) and self._kind(self._sections[number - 1]) == UNWIND:
                found.add_blocks(owners, self._sections[number - 1].size, UNWIND)

    def _targets(self, section: _Section, content: memoryview) -> dict[int, tuple[int, int]]:
        """Return the offset of each address in a section -> section and offset of what it points to."""
        first, count = section.relocations
        targets = {}
        for at, index, _kind in struct.iter_unpack("<IIH", take(self._data, first, count * 10, "its relocations")):
            if at > len(content) - 4 or index not in self._by_index:
                raise ObjectError("the object has a relocation outside of its section or symbols")
            symbol = self._by_index[index]
            targets[at] = (symbol.section, symbol.value + int.from_bytes(content[at : at + 4], "little"))
        return targets
