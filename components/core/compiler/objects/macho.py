"""Reads Mach-O objects: sections, text size, sizes of functions with their unwind data (mach-o/loader.h, nlist.h).

The text size is that of the sections of the segment __TEXT, without __eh_frame, and 8 bytes for each entry of
__compact_unwind: the linker writes at most so much for each function (unwind_info_regular_second_level_entry of
mach-o/compact_unwind_encoding.h), and keeps only those frame descriptions that have no compact form.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from components.core.compiler.objects.code_bytes import (
    EXCEPTIONS,
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

MAGIC = (b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe")
"""First bytes of 64-bit and 32-bit files, little-endian."""
_OBJECT = 1  # MH_OBJECT
_SEGMENT, _SYMBOLS, _SEGMENT_64 = 0x1, 0x2, 0x19
_CODE = 0x80000000 | 0x400  # S_ATTR_PURE_INSTRUCTIONS, S_ATTR_SOME_INSTRUCTIONS
_STAB, _TYPE, _IN_SECTION, _WEAK = 0xE0, 0x0E, 0x0E, 0x80
_UNWIND_BYTES = 8
_PRIVATE = ("ltmp", "l_", "L")
"""Beginnings of symbols that the assembler makes."""


@dataclass(frozen=True)
class _Section:
    name: str
    segment: str
    address: int
    size: int
    offset: int
    relocations: tuple[int, int]  # offset in the file, number
    flags: int


class MachO:
    """A Mach-O object.

    Raises:
        ObjectError: it is damaged, or is no object.
    """

    EMBEDDED: ClassVar = ("__LLVM,__bitcode", "__LLVM,__cmdline")

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        self._wide = bytes(self._data[:4]) == MAGIC[0]
        header = take(self._data, 0, 32 if self._wide else 28, "its header")
        _magic, _cpu, _subtype, kind, count, _size, _flags = struct.unpack_from("<7I", header)
        if kind != _OBJECT:
            raise ObjectError("function sizes require an object, but this Mach-O file is linked")
        self._sections: list[_Section] = []
        self._symbols = (0, 0, 0, 0)
        at = len(header)
        for _number in range(count):
            command, size = struct.unpack("<2I", take(self._data, at, 8, "its load commands"))
            body = take(self._data, at, max(size, 8), "a load command")
            if command in (_SEGMENT, _SEGMENT_64):
                self._read_segment(body, command == _SEGMENT_64)
            elif command == _SYMBOLS:
                self._symbols = struct.unpack("<4I", take(body, 8, 16, "its symbols"))
            at += len(body)
        check_overlap(self._data, ((section.offset, section.size) for section in self._sections if section.offset))
        relocations = (section.relocations for section in self._sections)
        check_overlap(self._data, ((first, count * 8) for first, count in relocations))

    def _read_segment(self, body: memoryview, wide: bool) -> None:
        form, begin = ("<16s16sQQIIIII", 72) if wide else ("<16s16sIIIIIII", 56)
        (count,) = struct.unpack("<I", take(body, begin - 8, 4, "a segment"))
        step = 80 if wide else 68
        for number in range(count):
            row = take(body, begin + number * step, step, "a section")
            name, segment, address, size, offset, _align, first, relocations, flags = struct.unpack_from(form, row)
            names = [part.partition(b"\0")[0].decode("utf-8", "replace") for part in (name, segment)]
            self._sections.append(_Section(names[0], names[1], address, size, offset, (first, relocations), flags))

    def contents(self, name: str) -> memoryview | None:
        """Return a section by `SEGMENT,NAME`; None if there is none."""
        for section in self._sections:
            if f"{section.segment},{section.name}" == name:
                return self._content(section)
        return None

    def _content(self, section: _Section) -> memoryview:
        if not section.offset:  # only zeros
            return memoryview(b"")
        return take(self._data, section.offset, section.size, f"the section {section.name}")

    def text_size(self) -> int:
        """Return the size of the text in bytes."""
        return sum(size for _section, _kind, size in self._text())

    def _text(self) -> list[tuple[_Section, str, int]]:
        """Return the sections that count, with kinds and bytes."""
        word = 8 if self._wide else 4
        counted = []
        for section in self._sections:
            if section.name == "__compact_unwind":
                counted.append((section, UNWIND, len(self._content(section)) // (2 * word + 16) * _UNWIND_BYTES))
            elif section.segment == "__TEXT" and section.name != "__eh_frame":
                is_table = section.name == "__gcc_except_tab"
                kind = TEXT if section.flags & _CODE else EXCEPTIONS if is_table else READ_ONLY
                counted.append((section, kind, len(self._content(section))))
        return counted

    def function_sizes(self) -> FunctionSizes:
        """Attribute the bytes of text to functions. Names are without the underscore that C's have."""
        found = Attribution()
        for _section, kind, size in self._text():
            found.total[kind] += size
        symbols = self._read_symbols()
        by_section: dict[int, list[tuple[str, int, bool]]] = defaultdict(list)
        for name, place, value, weak in symbols:
            by_section[place].append((name, value, weak))
        for index, section in enumerate(self._sections, 1):
            if not section.flags & _CODE:
                continue
            end = section.address + len(self._content(section))
            here: dict[int, list[tuple[str, bool]]] = defaultdict(list)
            for name, value, weak in by_section[index]:
                if section.address <= value < end:
                    here[value].append((name, weak))
            for begin, following in pairwise([*sorted(here), end]):
                found.function(0, begin, here[begin], following - begin)
        self._attribute_unwind(found, symbols)
        return found.result()

    def _read_symbols(self) -> list[tuple[str, int, int, bool]]:
        """Return name, number of the section, address, and whether it is weak, of the symbols of functions and data."""
        offset, count, strings_at, strings_size = self._symbols
        strings = Strings(take(self._data, strings_at, strings_size, "its strings"))
        form = "<IBBHQ" if self._wide else "<IBBHI"
        rows = take(self._data, offset, count * struct.calcsize(form), "its symbols")
        self._values: list[int] = []
        symbols = []
        for name_at, kind, section, description, value in struct.iter_unpack(form, rows):
            self._values.append(value)
            if kind & _STAB or kind & _TYPE != _IN_SECTION:
                continue
            name = strings.at(name_at, "a symbol's name")
            if not name.startswith(_PRIVATE):
                symbols.append((name.removeprefix("_"), section, value, bool(description & _WEAK)))
        return symbols

    def _attribute_unwind(self, found: Attribution, symbols: list[tuple[str, int, int, bool]]) -> None:
        word = 8 if self._wide else 4
        step = 2 * word + 16  # start of the function; its length and encoding; personality; LSDA
        tables: dict[int, int] = {}
        for section in self._sections:
            if section.name != "__compact_unwind":
                continue
            content = self._content(section)
            targets = self._targets(section, content, word)
            for at in range(0, len(content) - step + 1, step):
                entry = found.entry_at(0, targets.get(at, -1))
                if entry is None:
                    continue
                found.add(entry, UNWIND, _UNWIND_BYTES)
                if (table := targets.get(at + step - word)) is not None:
                    tables[table] = entry
        for section in self._sections:
            if section.name == "__gcc_except_tab":
                end = section.address + len(self._content(section))
                found.add_blocks({at: e for at, e in tables.items() if section.address <= at < end}, end, EXCEPTIONS)

    def _targets(self, section: _Section, content: memoryview, word: int) -> dict[int, int]:
        """Return the offset of each address in a section -> the address, which a relocation says."""
        first, count = section.relocations
        targets = {}
        for at, packed in struct.iter_unpack("<iI", take(self._data, first, count * 8, "its relocations")):
            if not 0 <= at <= len(content) - word:
                raise ObjectError("the object has a relocation outside of its section")
            addend = int.from_bytes(content[at : at + word], "little")
            symbol, is_symbol = packed & 0xFFFFFF, packed >> 27 & 1
            if is_symbol and symbol >= len(self._values):
                raise ObjectError("the object has a relocation of a symbol that it lacks")
            targets[at] = addend + (self._values[symbol] if is_symbol else 0)
        return targets
