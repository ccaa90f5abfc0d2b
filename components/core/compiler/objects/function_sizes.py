"""Attributes the text bytes of an object to its functions.

A function's whole size is its instructions, its FDE in .eh_frame, its exception table (LSDA) in .gcc_except_table, and
its jump tables: all of them disappear with the function. The rest (CIEs, string constants, padding) is the remainder.
Whole sizes and remainder sum exactly to the text size. On 32-bit ARM an entry in .ARM.exidx takes the place of the FDE,
and .ARM.extab that of the exception table (ARM IHI 0038).

How each part is found in an object, where addresses are relocations:

- FDE: by the relocation of the start address of its code.
- LSDA: by the relocation of its address in the FDE; it ends at the start of the next LSDA, or with its section.
- Jump tables in a section with other data: adjacent relocations that all point into one function, starting at an
  address that this function's code refers to.
- Jump tables and switch lookup tables in a separate section (.rodata.<function>, which -ffunction-sections and COMDAT
  functions have, .rodata..Lswitch.table.* of -fdata-sections): if no other function's code refers to the section.

Tables that cannot be attributed are in the remainder: AArch64's compressed jump tables in .rodata have no relocations.
A constant that only one function refers to does not count for that function: inlining a function copies its code, not
its constants.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from components.core.compiler.objects.eh_frame import read_frame_descriptions
from components.core.compiler.objects.elf import STB_WEAK, STT_FUNC, Elf, ElfError, Relocations

MAX_TEXT_BYTES = 1 << 31
_EM_386, _EM_ARM, _EM_X86_64, _EM_AARCH64, _EM_RISCV = 3, 40, 62, 183, 243
_ARM_PREL31 = 42
_EXIDX_ENTRY_BYTES = 8


@dataclass(frozen=True)
class _RelocationTypes:
    """The relocation types (R_<machine>_*) of addresses in tables and in code for one target.

    Attributes:
        absolute, relative: width in bytes of the word in a table, by type. A word of a `relative` type holds the
            distance from the word itself. An entry of a jump table is the distance from the table's start, so its
            addend includes the distance between the two.
        code: correction to add to the addend, by type of an instruction's operand: x86 counts from the operand's end.
    """

    absolute: dict[int, int]
    relative: dict[int, int]
    code: dict[int, int]

    @property
    def words(self) -> dict[int, int]:
        """Width in bytes of the word in a table, by type."""
        return self.absolute | self.relative


_RELOCATION_TYPES = {
    # absolute: 32, and GOTOFF, a distance from an address of the linked file; relative: PC32; code: 32, GOTOFF
    _EM_386: _RelocationTypes({1: 4, 9: 4}, {2: 4}, {1: 0, 9: 0}),
    # absolute: 64, 32, 32S; relative: PC32, PC64; code: PC32, 64, 32, 32S
    _EM_X86_64: _RelocationTypes({1: 8, 10: 4, 11: 4}, {2: 4, 24: 8}, {2: 4, 1: 0, 10: 0, 11: 0}),
    # absolute: ABS64, ABS32; relative: PREL64, PREL32; code: ADR_PREL_LO21, ADR_PREL_PG_HI21
    _EM_AARCH64: _RelocationTypes({257: 8, 258: 4}, {260: 8, 261: 4}, {274: 0, 275: 0}),
    # absolute: ABS32; relative: REL32, PREL31; code: ABS32 in literal pools, MOVW_ABS_NC, THM_MOVW_ABS_NC
    _EM_ARM: _RelocationTypes({2: 4}, {3: 4, _ARM_PREL31: 4}, {2: 0, 43: 0, 47: 0}),
    # absolute: 32, 64, ADD32 and ADD64, whose SUB32 and SUB64 make them relative; relative: 32_PCREL;
    # code: HI20, PCREL_HI20
    _EM_RISCV: _RelocationTypes({1: 4, 2: 8, 35: 4, 36: 8}, {57: 4}, {26: 0, 23: 0}),
}


@dataclass(frozen=True)
class FunctionSizes:
    """Text bytes of each function [M] of an object, and the bytes that belong to no function.

    Symbols with the same address and size are aliases (a constructor's C1 and C2) and share an entry, so that
    `text_size_bytes == whole.sum() + sum(remainder.values())`.

    Attributes:
        names: names of the defined function symbols (STT_FUNC) [N]; bytes that are not UTF-8 as surrogates.
        weak: bool [N], whether the linker keeps only one of the objects' definitions (STB_WEAK: linkonce, weak).
        entry: int32 [N], index in the arrays below.
        instructions: int64 [M], bytes in executable sections.
        unwind: int64 [M], bytes of FDEs.
        exceptions: int64 [M], bytes of LSDAs.
        jump_tables: int64 [M], bytes of jump tables and switch lookup tables.
        remainder: bytes that belong to no function, by section name; no zeros.
        sections: bytes of all text by kind: .text (everything executable), .eh_frame (with .ARM.exidx),
            .gcc_except_table (with .ARM.extab), .rodata (the rest); all four keys are always present.
        text_size_bytes: text size as llvm-size counts it.
        undefined: names of the symbols that the object uses and does not define; only of ELF.
        bodies: uint64 [M], digests of the instructions without what relocations fill in, 0 without instructions; only
            if wanted, and of ELF.
    """

    names: list[str]
    weak: NDArray[np.bool_]
    entry: NDArray[np.int32]
    instructions: NDArray[np.int64]
    unwind: NDArray[np.int64]
    exceptions: NDArray[np.int64]
    jump_tables: NDArray[np.int64]
    remainder: dict[str, int]
    sections: dict[str, int]
    text_size_bytes: int
    undefined: frozenset[str] = frozenset()
    bodies: NDArray[np.uint64] | None = None

    @property
    def whole(self) -> NDArray[np.int64]:
        """The whole size of each function, the sum of its parts, int64 [M]."""
        return self.instructions + self.unwind + self.exceptions + self.jump_tables

    def by_name(self) -> dict[str, int]:
        """Return the whole size of each function by name.

        Local functions with the same name are summed; each alias has the whole size.
        """
        sizes: dict[str, int] = {}
        for name, size in zip(self.names, self.whole[self.entry].tolist(), strict=True):
            sizes[name] = sizes.get(name, 0) + size
        return sizes


def read_function_sizes(elf: Elf, want_bodies: bool = False) -> FunctionSizes:
    """Attribute each text byte of an object to a function or to the remainder.

    Args:
        want_bodies: whether to compute `FunctionSizes.bodies`.

    Raises:
        ElfError: the file is not an object, has no symbol table, is damaged, or is for an unsupported target.
    """
    attribution = _Attribution(elf)
    sizes = attribution.result()
    return replace(sizes, bodies=attribution.bodies()) if want_bodies else sizes


def digest64(data: bytes | memoryview) -> int:
    """Return 64 bits of BLAKE2b."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


class _Functions:
    """Function symbols as entries, ordered by position (see `_Attribution.position`) and size.

    Attributes:
        entry: int32 [N], index of each symbol's entry.
        start, end: int64 [M], positions; entries do not overlap. All symbols outside of text (absolute ones) share an
            entry at -1.
        section: int64 [M], index of the section; -1 outside of text.
    """

    def __init__(
        self, start: NDArray[np.int64], size: NDArray[np.int64], section: NDArray[np.int64], limit: int
    ) -> None:
        """Create the entries of symbols [N]; `limit` is greater than all positions and sizes."""
        self._limit = limit
        self._key, first, entry = np.unique(start * limit + size, return_index=True, return_inverse=True)
        self.entry = entry.astype(np.int32)
        self.start, self.section = start[first], section[first]
        self.end = self.start + size[first]
        # Assembly may nest functions: the outer one ends where the inner one starts.
        self.end[:-1] = np.minimum(self.end[:-1], self.start[1:])

    def __len__(self) -> int:
        return len(self.start)

    def at(self, position: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the entry that contains each position, int64, or -1. An empty function contains its start."""
        if not len(self):
            return np.full(len(position), -1, np.int64)
        last = np.searchsorted(self.start, position, "right") - 1
        inside = (position >= 0) & (last >= 0) & ((position < self.end[last]) | (position == self.start[last]))
        return np.where(inside, last, -1)

    def starting_at(self, position: NDArray[np.int64], size: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the entry with each position and size, int64, or the result of `at` if there is none.

        Entries may share a start: an empty function (whose body is unreachable) starts where the next one does.
        """
        if not len(self):
            return self.at(position)
        key = position * self._limit + size
        entry = np.minimum(np.searchsorted(self._key, key), len(self) - 1)
        exact = (self._key[entry] == key) & (position >= 0) & (size >= 0) & (size < self._limit)
        return np.where(exact, entry, self.at(position))


class _Attribution:
    """Attributes the bytes of one object: reads its tables once and sums bytes by entry and section."""

    def __init__(self, elf: Elf) -> None:
        if not elf.relocatable:
            raise ElfError("function sizes require an object, but this ELF file is linked")
        if elf.machine not in _RELOCATION_TYPES:
            raise ElfError(f"the relocations of machine {elf.machine} (e_machine) are not supported")
        self._elf = elf
        self._types = _RELOCATION_TYPES[elf.machine]
        if elf.text_size() >= MAX_TEXT_BYTES:
            raise ElfError(f"the object has {elf.text_size()} bytes of text, which is too much")
        self._size, self._code = elf.text_sections()
        self._base = np.zeros(len(self._size) + 1, np.int64)
        np.cumsum(np.maximum(self._size, 0) + 1, out=self._base[1:])
        self._symbols = elf.symbols()
        # Section 0 has the undefined symbols, -1 becomes one past the last section: neither has text.
        self._section = np.where(self._symbols.section < 0, len(self._size), self._symbols.section)
        self._defined = np.flatnonzero((self._symbols.type == STT_FUNC) & (self._symbols.section != 0))
        self._names = elf.symbol_names(self._symbols.name[self._defined])
        self._functions = self._read_functions()
        self._left = self._size.copy()
        self._eh_frame = self._data_sections(b".eh_frame\0")
        self._exidx = self._data_sections(b".ARM.exidx")
        self._tables = self._data_sections(b".gcc_except_table") | self._data_sections(b".ARM.extab")

    def result(self) -> FunctionSizes:
        functions = self._functions
        rows = np.arange(len(functions))
        instructions = self._attribute(rows, functions.end - functions.start, functions.section)
        unwind, exceptions = self._unwind_and_exceptions()
        jump_tables = self._jump_tables()
        if ((self._left < 0) & (self._size >= 0)).any():
            raise ElfError("the function tables of this object overlap")
        undefined = (self._symbols.section == 0) & (self._symbols.name != 0)
        return FunctionSizes(
            names=self._names,
            weak=self._symbols.binding[self._defined] == STB_WEAK,
            entry=functions.entry,
            instructions=instructions,
            unwind=unwind,
            exceptions=exceptions,
            jump_tables=jump_tables,
            remainder=self._remainder(),
            sections=self._sections(),
            text_size_bytes=self._elf.text_size(),
            undefined=frozenset(self._elf.symbol_names(self._symbols.name[undefined])),
        )

    def bodies(self) -> NDArray[np.uint64]:
        """Return `FunctionSizes.bodies`."""
        functions = self._functions
        bodies = np.zeros(len(functions), np.uint64)
        coded = np.flatnonzero((functions.section >= 0) & (functions.end > functions.start))
        sections = functions.section[coded]
        begin, end = functions.start[coded] - self._base[sections], functions.end[coded] - self._base[sections]
        places = zip(coded.tolist(), sections.tolist(), begin.tolist(), end.tolist(), strict=True)
        for entry, section, first, last in places:
            bodies[entry] = digest64(self._elf.contents(section)[first:last])
        return bodies

    def position(self, section: NDArray[np.int64], offset: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a number that identifies each offset in text, int64, ascending by section and offset; -1 elsewhere."""
        size = np.append(self._size, -1)[section]
        return np.where((offset >= 0) & (offset <= size), self._base[section] + offset, -1)

    def _target(self, relocations: Relocations, addend: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the position of symbol + addend for each relocation, int64."""
        symbol = relocations.symbol
        return self.position(self._section[symbol], self._symbols.value[symbol] + addend)

    def _read_functions(self) -> _Functions:
        rows = self._defined
        section, value, size = self._section[rows], self._symbols.value[rows], self._symbols.size[rows]
        if self._elf.machine == _EM_ARM:
            value = value & ~1  # set in the symbols of Thumb functions
        room = np.append(self._size, -1)[section]
        outside = (room >= 0) & ((value < 0) | (size < 0) | (value > room) | (size > room - value))
        if outside.any():
            row = np.flatnonzero(outside)[0]
            raise ElfError(
                f"function {self._names[row]!r} has {size[row]} bytes at byte {value[row]} of section "
                f"{section[row]}, which has {room[row]} bytes"
            )
        code = (room >= 0) & np.append(self._code, False)[section]
        start = np.where(code, self.position(section, value), -1)
        return _Functions(start, np.where(code, size, 0), np.where(code, section, -1), int(self._base[-1]) + 1)

    def _data_sections(self, name: bytes) -> NDArray[np.bool_]:
        """Return which sections have text, no instructions, and a name that starts with `name`, bool [sections]."""
        marked = np.zeros(len(self._size), bool)
        marked[self._elf.sections_named(name)] = True
        return marked & (self._size >= 0) & ~self._code

    def _attribute(
        self, entry: NDArray[np.int64], size: NDArray[np.int64], section: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Attribute `size` bytes of `section` to each `entry` and return the sum by entry, int64 [M].

        Entries and sections of -1 are left out.
        """
        is_attributed = (entry >= 0) & (section >= 0)
        entry, size, section = entry[is_attributed], size[is_attributed], section[is_attributed]
        # Weights are float64, which is exact: their sum is less than 2 GiB.
        self._left -= np.bincount(section, size, len(self._left)).astype(np.int64)
        return np.bincount(entry, size, len(self._functions)).astype(np.int64)

    def _unwind_and_exceptions(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the bytes of FDEs and of LSDAs, int64 [M] each."""
        no_rows = np.zeros(0, np.int64)
        owners, tables = [no_rows], [no_rows]
        entries = [(no_rows, no_rows, no_rows)]  # owner, bytes and section
        for index in np.flatnonzero(self._eh_frame).tolist():
            contents = self._elf.contents(index)
            fdes = read_frame_descriptions(contents, self._elf.address_bytes, self._elf.byte_order)
            offsets, targets = self._addresses(index)
            row, exists = find_sorted(offsets, fdes.address)
            if not exists.all():
                raise ElfError(".eh_frame has an FDE whose code address has no relocation")
            # With linker relaxation, as on RISC-V, relocations fill in the sizes.
            relocated = find_sorted(offsets, fdes.code_size_at)[1]
            owner = self._functions.starting_at(targets[row], np.where(relocated, -1, fdes.code_size))
            entries.append((owner, fdes.size, np.full(len(owner), index)))
            row, exists = find_sorted(offsets, fdes.lsda)
            owners.append(owner[exists])
            tables.append(targets[row[exists]])
        for index in np.flatnonzero(self._exidx).tolist():
            # Two words: the address of the function, and that of its table if it has one.
            offsets, targets = self._addresses(index)
            first = offsets % _EXIDX_ENTRY_BYTES == 0
            owner = self._functions.at(targets[first])
            entries.append((owner, np.full(len(owner), _EXIDX_ENTRY_BYTES), np.full(len(owner), index)))
            row, exists = find_sorted(offsets[first], offsets[~first] - _EXIDX_ENTRY_BYTES // 2)
            owners.append(owner[row[exists]])
            tables.append(targets[~first][exists])
        # All at once: with -ffunction-sections there are as many sections of .ARM.exidx as functions.
        unwind = self._attribute(*map(np.concatenate, zip(*entries, strict=True)))
        # An LSDA belongs to the first function that refers to it.
        start, first = np.unique(np.concatenate(tables), return_index=True)
        owner = np.concatenate(owners)[first]
        section = np.searchsorted(self._base, start, "right") - 1
        in_table = (start >= 0) & np.append(self._tables, False)[section]
        start, owner, section = start[in_table], owner[in_table], section[in_table]
        end = self._base[section] + self._size[section]
        end[:-1] = np.minimum(end[:-1], start[1:])
        return unwind, self._attribute(owner, end - start, section)

    def _addresses(self, section: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the offsets of the addresses in a section of unwind tables, ascending, and the positions they point
        to, int64 each."""
        relocations, targets = self._unwind_relocations
        rows = slice(*np.searchsorted(relocations.section, (section, section + 1)))
        return relocations.offset[rows], targets[rows]

    @cached_property
    def _unwind_relocations(self) -> tuple[Relocations, NDArray[np.int64]]:
        """The addresses in all sections of unwind tables, by section and offset, and the positions they point to."""
        relocations = self._relocations(self._eh_frame | self._exidx)
        relocations = relocations[_look_up(self._types.words, relocations.type) >= 0]
        relocations = relocations[np.lexsort((relocations.offset, relocations.section))]
        return relocations, self._target(relocations, relocations.addend)

    def _relocations(self, sections: NDArray[np.bool_]) -> Relocations:
        result = self._elf.relocations(sections, len(self._symbols), self._types.words)
        if self._elf.machine == _EM_ARM:
            narrow = result.type == _ARM_PREL31  # a number of 31 bits below a flag
            result.addend[narrow] = (result.addend[narrow] & 0x7FFFFFFF ^ 0x40000000) - 0x40000000
        return result

    def _jump_tables(self) -> NDArray[np.int64]:
        """Return the bytes of jump tables, int64 [M]."""
        if not len(self._functions):
            return np.zeros(0, np.int64)
        shared = (self._size > 0) & ~self._code & ~self._eh_frame & ~self._exidx & ~self._tables
        own = self._sections_of_functions() & shared
        shared &= ~own
        entries = self._entries(shared)
        if not len(entries) and not own.any():
            return np.zeros(len(self._functions), np.int64)
        tables = own.copy()
        tables[entries.section] = True
        references = self._relocations(self._code)
        references = references[np.append(tables, False)[self._section[references.symbol]]]
        references = references[_look_up(self._types.code, references.type) >= 0]
        return self._sections_of_one(own, references) + self._runs_of_entries(entries, references)

    def _sections_of_functions(self) -> NDArray[np.bool_]:
        """Return which sections have a name that is reserved for one function's tables, bool [sections]."""
        marked = self._data_sections(b".rodata..Lswitch.table.") | self._data_sections(b".rodata..Lreltable.")
        others = self._elf.sections_named(b".rodata.")
        if others:
            names = set(self._names)
            found = self._elf.section_names(np.array(others))
            marked[[i for i, name in zip(others, found, strict=True) if name.removeprefix(".rodata.") in names]] = True
        return marked

    def _sections_of_one(self, own: NDArray[np.bool_], references: Relocations) -> NDArray[np.int64]:
        """Return the bytes of the sections in `own` that only one function's code refers to, int64 [M]."""
        section = self._section[references.symbol]
        rows = np.append(own, False)[section]
        section = section[rows]
        function = self._functions.at(self.position(references.section[rows], references.offset[rows]))
        lowest, highest = np.full(len(own), len(self._functions)), np.full(len(own), -1)
        np.minimum.at(lowest, section, function)
        np.maximum.at(highest, section, function)
        exclusive = np.flatnonzero(own & (lowest == highest))
        return self._attribute(lowest[exclusive], self._size[exclusive], exclusive)

    def _entries(self, sections: NDArray[np.bool_]) -> Relocations:
        """Return the relocations in `sections` that may be entries of a jump table.

        They point into code, but not through a function's symbol.
        """
        result = self._relocations(sections)
        code = np.append(self._code, False)[self._section[result.symbol]]
        result = result[code & (self._symbols.type[result.symbol] != STT_FUNC)]
        result = result[_look_up(self._types.words, result.type) >= 0]
        return result[np.lexsort((result.offset, result.section))]

    def _runs_of_entries(self, entries: Relocations, references: Relocations) -> NDArray[np.int64]:
        """Return the bytes of jump tables, int64 [M].

        Entries are split into runs of adjacent entries; a run also starts at each address that code refers to. A run is
        a function's jump table if all its entries point into that function, not all of them to the function's start as
        in a table of function pointers, and if the function's code refers to the start of the run.
        """
        if not len(entries):
            return np.zeros(len(self._functions), np.int64)
        referred = self._target(references, references.addend + _look_up(self._types.code, references.type))
        referrer = self._functions.at(self.position(references.section, references.offset))
        width = _look_up(self._types.words, entries.type)
        relative = _look_up(self._types.relative, entries.type) >= 0
        entry_position = self.position(entries.section, entries.offset)
        starts = np.ones(len(entries), bool)
        starts[1:] = (entry_position[1:] != entry_position[:-1] + width[:-1]) | (entries.type[1:] != entries.type[:-1])
        starts |= np.isin(entry_position, referred)
        first = np.flatnonzero(starts)
        start = entry_position[first][np.cumsum(starts) - 1]
        target = self._target(entries, entries.addend - np.where(relative, entry_position - start, 0))
        function = self._functions.at(target)
        owner = np.minimum.reduceat(function, first)
        single = (owner >= 0) & (owner == np.maximum.reduceat(function, first))
        single &= np.logical_or.reduceat(target != self._functions.start[function], first)
        key = len(self._functions) + 1  # greater than every entry
        single &= np.isin(entry_position[first] * key + owner, referred * key + referrer)
        return self._attribute(np.where(single, owner, -1), np.add.reduceat(width, first), entries.section[first])

    def _remainder(self) -> dict[str, int]:
        """Return the bytes that belong to no function, by section name."""
        remainder: dict[str, int] = {}
        sections = np.flatnonzero(self._left > 0)
        for name, size in zip(self._elf.section_names(sections), self._left[sections].tolist(), strict=True):
            remainder[name] = remainder.get(name, 0) + size
        return remainder

    def _sections(self) -> dict[str, int]:
        """Return the bytes of text by kind of section."""
        counted = self._size >= 0
        kinds = {".text": self._code, ".eh_frame": self._eh_frame | self._exidx, ".gcc_except_table": self._tables}
        sizes = {name: int(self._size[marked].sum()) for name, marked in kinds.items()}
        return sizes | {".rodata": int(self._size[counted].sum()) - sum(sizes.values())}


def find_sorted(values: NDArray[Any], queries: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the index of each query in the ascending `values`, int64 [N], and whether it is there, bool [N]."""
    row = np.searchsorted(values, queries)
    exists = row < len(values)
    exists[exists] = values[row[exists]] == queries[exists]
    return np.where(exists, row, 0), exists


def _look_up(values: dict[int, int], keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the value of each key, int64 [N], -1 for unknown keys. Keys are not negative."""
    table: NDArray[np.int64] = np.full(max(values) + 2, -1)
    table[list(values)] = list(values.values())
    entries: NDArray[np.int64] = table[np.minimum(keys, len(table) - 1)]
    return entries
