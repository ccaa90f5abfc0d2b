"""Reads ELF objects and linked files in-process: sections, native text size, symbols, relocations.

Layouts follow the System V ABI (gABI) chapters 4 and 5, 32 and 64 bits, little- and big-endian. Starts no processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from components.core.formats.bitcode import is_bitcode
from components.platform.errors import UserError

ET_REL = 1
ET_EXEC = 2
ET_DYN = 3
LINKED_TYPES = (ET_EXEC, ET_DYN)
TYPE_BYTES = 18
"""Bytes of a file that `elf_type` reads."""
STT_FUNC = 2
STB_WEAK = 2

_MAGIC = b"\x7fELF"
_SHT_SYMTAB = 2
_SHT_RELA = 4
_SHT_NOBITS = 8
_SHT_REL = 9
_SHT_SYMTAB_SHNDX = 18
_SHF_WRITE = 0x1
_SHF_ALLOC = 0x2
_SHF_EXECINSTR = 0x4
_SHN_LORESERVE = 0xFF00
_SHN_XINDEX = 0xFFFF

_SECTION = np.dtype(
    [
        *(("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("address", "<u8"), ("offset", "<u8"), ("size", "<u8")),
        *(("link", "<u4"), ("info", "<u4"), ("alignment", "<u8"), ("entry_size", "<u8")),
    ]
)
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<i8"), ("size", "<i8")]
)
_RELA = np.dtype([("offset", "<i8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
_REL = np.dtype([("offset", "<i8"), ("type", "<u4"), ("symbol", "<u4")])
_SECTION_32 = np.dtype([(name, "<u4") for name in _SECTION.names or ()])
_SYMBOL_32 = np.dtype(
    [("name", "<u4"), ("value", "<u4"), ("size", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2")]
)
_RELA_32 = np.dtype([("offset", "<u4"), ("type_and_symbol", "<u4"), ("addend", "<i4")])
_REL_32 = np.dtype([("offset", "<u4"), ("type_and_symbol", "<u4")])


MAX_NAMES_PER_BYTE = 8
MAX_SHARED_NAMES_BYTES = 64 << 20
"""Limit of the bytes of names that share those of a string table: so many times its size, and so many more."""
ORDERS = {"little": "<", "big": ">"}
"""Byte order -> NumPy's character for it."""


@dataclass(frozen=True)
class _Layout:
    """The layout of a file's tables, which are read as those of 64-bit little-endian files.

    Attributes:
        bits: 32 or 64.
        byte_order: "little" or "big".
        tables: canonical dtype -> dtype in the file.
    """

    bits: Literal[32, 64]
    byte_order: Literal["little", "big"]
    tables: Mapping[np.dtype[Any], np.dtype[Any]]

    @property
    def order(self) -> str:
        """NumPy's character for the byte order."""
        return ORDERS[self.byte_order]

    @property
    def header_bytes(self) -> int:
        """Size of the file's header."""
        return 64 if self.bits == 64 else 52

    def header_field(self, header: memoryview, at_64: int, at_32: int, size: int) -> int:
        """Return a field of the file's header; `size` bytes, or an address of the file's width if 0."""
        at = at_64 if self.bits == 64 else at_32
        return int.from_bytes(header[at : at + (size or self.bits // 8)], self.byte_order)

    def read(self, data: bytes | memoryview, canonical: np.dtype[Any]) -> NDArray[Any]:
        """Return a table of the file in the canonical dtype."""
        stored = self.tables[canonical]
        rows = np.frombuffer(data, stored)
        if stored is canonical:
            return rows
        result = np.empty(len(rows), canonical)
        for name in stored.names or ():
            if name == "type_and_symbol":
                result["type"], result["symbol"] = rows[name] & 0xFF, rows[name] >> 8
            else:
                result[name] = rows[name]
        return result


def _swap_bytes(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a 64-bit table of a big-endian file. r_info is one number, so the symbol precedes the type there."""
    names = list(dtype.names or ())
    if "symbol" in names:
        names[1:3] = "symbol", "type"
    return np.dtype([(name, dtype[name]) for name in names]).newbyteorder(">")


_TABLES_64 = {table: table for table in (_SECTION, _SYMBOL, _RELA, _REL)}
_TABLES_32 = {_SECTION: _SECTION_32, _SYMBOL: _SYMBOL_32, _RELA: _RELA_32, _REL: _REL_32}
_LAYOUTS = {
    b"\x02\x01": _Layout(64, "little", _TABLES_64),
    b"\x02\x02": _Layout(64, "big", {table: _swap_bytes(table) for table in _TABLES_64}),
    b"\x01\x01": _Layout(32, "little", _TABLES_32),
    b"\x01\x02": _Layout(32, "big", {table: stored.newbyteorder(">") for table, stored in _TABLES_32.items()}),
}
"""e_ident[EI_CLASS] and e_ident[EI_DATA] -> layout."""


def elf_type(start: bytes | memoryview) -> int:
    """Return e_type (ET_*) of a file that starts with these TYPE_BYTES or more bytes; 0 (ET_NONE) if it is no ELF file.

    For files that only have to be told apart: `Elf` reads the section headers, too.
    """
    if len(start) < TYPE_BYTES or start[:4] != _MAGIC:
        return 0
    return int.from_bytes(start[16:TYPE_BYTES], "big" if start[5] == 2 else "little")


class ElfError(UserError):
    """The data is not a readable ELF file; the message says why."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem, "build it again with clang for an ELF target, without -flto")
        self.args = (problem,)  # so that the error pickles


@dataclass(frozen=True)
class Symbols:
    """The symbol table [N], in file order.

    Attributes:
        name: int64, offsets in the string table; see `Elf.symbol_names`.
        type: uint8, STT_*.
        binding: uint8, STB_*.
        section: int64, index of the section that defines the symbol; 0 if it is undefined, -1 if it is in no section
            (absolute, common).
        value: int64; in an object, an offset in that section.
        size: int64, bytes.
    """

    name: NDArray[np.int64]
    type: NDArray[np.uint8]
    binding: NDArray[np.uint8]
    section: NDArray[np.int64]
    value: NDArray[np.int64]
    size: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.name)


@dataclass(frozen=True)
class Relocations:
    """Relocations [N] of an object.

    Attributes:
        section: int64, index of the section that they modify.
        offset: int64, offset in that section.
        type: int64, R_<machine>_*.
        symbol: int64, indices of the symbol table.
        addend: int64.
    """

    section: NDArray[np.int64]
    offset: NDArray[np.int64]
    type: NDArray[np.int64]
    symbol: NDArray[np.int64]
    addend: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.section)

    def __getitem__(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> Relocations:
        return Relocations(self.section[rows], self.offset[rows], self.type[rows], self.symbol[rows], self.addend[rows])


class Elf:
    """One ELF file in memory.

    The constructor reads only the header and the section headers; `data` may be a memoryview of an mmap, so that pages
    that are not needed are never read.

    Attributes:
        type: e_type, the kind of file (ET_*).
        machine: e_machine, the instruction set (EM_*).
        address_bytes: bytes of an address, 4 or 8.
        byte_order: "little" or "big".

    Raises:
        ElfError: the file is malformed; the constructor and every method may raise it.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        size = len(self._data)
        magic = bytes(self._data[:4])
        if is_bitcode(magic):
            raise ElfError("this is LLVM bitcode, not an ELF object")
        if magic != _MAGIC:
            raise ElfError(f"this is not an ELF file: it starts with {magic!r}")
        identification = bytes(self._data[4:6])
        if identification not in _LAYOUTS:
            raise ElfError(f"this ELF file says neither its width nor its byte order: {identification!r}")
        layout = self._layout = _LAYOUTS[identification]
        if size < layout.header_bytes:
            raise ElfError(f"truncated ELF file: it has {size} bytes, but its header alone has {layout.header_bytes}")
        self.address_bytes, self.byte_order = layout.bits // 8, layout.byte_order
        header = self._data[: layout.header_bytes]
        self.type = layout.header_field(header, 16, 16, 2)
        self.machine = layout.header_field(header, 18, 18, 2)
        offset = layout.header_field(header, 40, 32, 0)
        entry_size = layout.header_field(header, 58, 46, 2)
        count = layout.header_field(header, 60, 48, 2)
        names_index = layout.header_field(header, 62, 50, 2)
        if offset == 0:
            raise ElfError("this ELF file has no section headers")
        section_bytes = layout.tables[_SECTION].itemsize
        if entry_size != section_bytes:
            raise ElfError(f"section headers have {entry_size} bytes, expected {section_bytes}")
        # Objects with 65,280 or more sections keep the real numbers in section 0 (gABI, extended numbering).
        if count == 0 or names_index == _SHN_XINDEX:
            first = layout.read(self._bytes(offset, section_bytes, "section header 0"), _SECTION)[0]
            count = count or int(first["size"])
            if names_index == _SHN_XINDEX:
                names_index = int(first["link"])
        headers = self._bytes(offset, count * section_bytes, "section headers")
        # Columns, for operations on all sections at once: an object has thousands. Lists, for exact arithmetic.
        self._sections = layout.read(headers, _SECTION)
        self._type = self._sections["type"].tolist()
        self._offset = self._sections["offset"].tolist()
        self._size = self._sections["size"].tolist()
        self._link = self._sections["link"].tolist()
        self._entry_size = self._sections["entry_size"].tolist()
        if names_index >= count:
            raise ElfError(f"the section name table has index {names_index}, but there are {count} sections")
        self._names = bytes(self.contents(names_index))

    @property
    def relocatable(self) -> bool:
        """Whether the file is an object, as opposed to a linked file."""
        return self.type == ET_REL

    def _bytes(self, offset: int, size: int, what: str) -> memoryview:
        end = offset + size
        if end > len(self._data):
            raise ElfError(f"truncated ELF file: {what} ends at byte {end}, but the file has {len(self._data)} bytes")
        return self._data[offset:end]

    def contents(self, index: int) -> memoryview:
        """Return the contents of section `index` (a view into `data`)."""
        if self._type[index] == _SHT_NOBITS:
            raise ElfError(f"section {index} has no bytes in the file (SHT_NOBITS)")
        return self._bytes(self._offset[index], self._size[index], f"section {index}")

    def section(self, name: str) -> memoryview | None:
        """Return the contents of the first section called `name` (a view into `data`), or None."""
        sections = self.sections_named(name.encode() + b"\0")
        return self.contents(sections[0]) if sections else None

    def joined_sections(self, name: str) -> memoryview | None:
        """Return the contents of all sections called `name`, one after the other, or None if there is none."""
        sections = self.sections_named(name.encode() + b"\0")
        contents = list(map(self.contents, sections))
        self._check_overlap(self._sections["size"][sections])
        return None if not contents else contents[0] if len(contents) == 1 else memoryview(b"".join(contents))

    def sections_named(self, prefix: bytes) -> list[int]:
        """Return the indices of the sections whose NUL-terminated name starts with `prefix`."""
        # A name may share the tail of another one ("text" in ".text"), so every occurrence is a candidate.
        starts = np.zeros(len(self._names) + 1, bool)
        at = self._names.find(prefix)
        while at >= 0:
            starts[at] = True
            at = self._names.find(prefix, at + 1)
        indices: list[int] = np.flatnonzero(starts[np.minimum(self._sections["name"], len(self._names))]).tolist()
        return indices

    def section_address(self, index: int) -> int:
        """Return the address of section `index` of a linked file."""
        return int(self._sections["address"][index])

    def section_name(self, index: int) -> str:
        """Return the name of section `index`."""
        return self.section_names(np.array([index]))[0]

    def section_names(self, indices: NDArray[np.integer[Any]]) -> list[str]:
        """Return the names of the sections `indices`."""
        return _read_names(self._names, self._sections["name"][indices].astype(np.int64))

    def text_size(self) -> int:
        """Return the bytes of native text exactly as `llvm-size` (Berkeley format) counts them.

        This follows LLVM's ObjectFile::isBerkeleyText: allocated, and executable or not writable. Read-only data and
        unwind tables therefore count as well.
        """
        return sum(self._sections["size"][self._is_text()].tolist())

    def text_sections(self) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the size of each section that `text_size` counts, and whether the section has instructions.

        Returns:
            int64 [sections], bytes, -1 for a section that is not counted; and bool [sections].
        """
        counted = self._is_text()
        rows = self._sections
        beyond = counted & (rows["type"] != _SHT_NOBITS) & ~self._is_inside(rows["offset"], rows["size"])
        beyond |= counted & (rows["size"] >= 1 << 48)
        if beyond.any():
            index = int(np.flatnonzero(beyond)[0])
            raise ElfError(f"truncated ELF file: it is too short for section {index} of {self._size[index]} bytes")
        self._check_overlap(rows["size"][counted & (rows["type"] != _SHT_NOBITS)])
        code = counted & ((rows["flags"] & np.uint64(_SHF_EXECINSTR)) != 0)
        return np.where(counted, rows["size"].astype(np.int64), -1), code

    def allocated_sections(self) -> NDArray[np.bool_]:
        """Return which sections a loader maps (SHF_ALLOC), bool [sections]."""
        return np.asarray((self._sections["flags"] & np.uint64(_SHF_ALLOC)) != 0)

    def _is_text(self) -> NDArray[np.bool_]:
        """Return which sections are text, bool [sections]."""
        flags = self._sections["flags"]
        read_only = (flags & np.uint64(_SHF_EXECINSTR | _SHF_WRITE)) != _SHF_WRITE
        return np.asarray(((flags & np.uint64(_SHF_ALLOC)) != 0) & read_only)

    def _is_inside(self, offset: NDArray[np.uint64], size: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return whether the file has that many bytes at each offset, bool [N]."""
        end = np.uint64(len(self._data))
        return np.asarray((offset <= end) & (size <= end - np.minimum(offset, end)))

    def _check_overlap(self, size: NDArray[np.uint64]) -> None:
        """Raise an ElfError if sections of these sizes share bytes, which can take far more memory than the file."""
        if (total := sum(size.tolist())) > len(self._data):
            raise ElfError(f"its sections overlap: they have {total} bytes, but the file has {len(self._data)} bytes")

    def section_sizes(self, allocated_only: bool = False, in_file_only: bool = False) -> dict[str, int]:
        """Return the bytes of each named section; sections with the same name (COMDAT copies) are summed.

        Args:
            allocated_only: whether to count only sections that a loader maps (SHF_ALLOC), which a user ships and runs.
            in_file_only: whether to count only sections with bytes in the file, without .bss and lld's padding.
        """
        rows = self._sections
        counted = rows["name"] != 0
        if allocated_only:
            counted &= self.allocated_sections()
        if in_file_only:
            counted &= rows["type"] != _SHT_NOBITS
        sizes: Counter[str] = Counter()
        for name, size in zip(self.section_names(np.flatnonzero(counted)), rows["size"][counted].tolist(), strict=True):
            sizes[name] += size
        return dict(sizes)

    def symbols(self) -> Symbols:
        """Return the symbol table. ElfError if the file has none."""
        table, _ = self._symbol_table()
        rows = self._layout.read(self.contents(table), _SYMBOL)
        section = rows["section"].astype(np.int64)
        extended = section == _SHN_XINDEX
        section[section >= _SHN_LORESERVE] = -1
        if extended.any():
            section[extended] = self._extended_sections(table, len(rows))[extended]
        if len(section) and section.max() >= len(self._type):
            raise ElfError(f"a symbol is in section {section.max()}, but there are {len(self._type)} sections")
        return Symbols(
            rows["name"].astype(np.int64),
            rows["info"] & np.uint8(0xF),
            rows["info"] >> np.uint8(4),
            section,
            rows["value"].astype(np.int64),
            rows["size"].astype(np.int64),
        )

    def symbol_names(self, offsets: NDArray[np.int64]) -> list[str]:
        """Return the names at the offsets of `Symbols.name`; bytes that are not UTF-8 become surrogates."""
        _, strings = self._symbol_table()
        return _read_names(bytes(self.contents(strings)), offsets)

    def relocations(
        self, sections: NDArray[np.bool_], symbols: int, implicit_addends: Mapping[int, int] | None = None
    ) -> Relocations:
        """Return the relocations of the selected sections.

        Args:
            sections: bool [sections], the selection.
            symbols: length of the symbol table.
            implicit_addends: by relocation type, width in bytes of the word that holds the addend, for targets whose
                relocations have no addend field (SHT_REL); such relocations of other types are left out.
        """
        rows = self._sections
        target = np.minimum(rows["info"], len(sections))
        selected = np.append(sections, False)[target]
        explicit = self._explicit(np.flatnonzero(selected & (rows["type"] == _SHT_RELA)))
        implicit = np.flatnonzero(selected & (rows["type"] == _SHT_REL)).tolist()
        self._check_overlap(rows["size"][implicit])
        parts = [explicit, *(self._implicit(index, implicit_addends or {}) for index in implicit)]
        columns = [[getattr(part, column.name) for part in parts] for column in fields(Relocations)]
        result = explicit if not implicit else Relocations(*map(np.concatenate, columns))
        if len(result) and result.symbol.max() >= symbols:
            raise ElfError(f"a relocation refers to symbol {result.symbol.max()}, but there are {symbols} symbols")
        return result

    def _explicit(self, tables: NDArray[np.intp]) -> Relocations:
        """Return the relocations of the SHT_RELA sections `tables`."""
        headers = self._sections[tables]
        offset, size = headers["offset"], headers["size"]
        row_bytes = self._layout.tables[_RELA].itemsize
        damaged = ~self._is_inside(offset, size) | (headers["entry_size"] != row_bytes)
        damaged |= size % np.uint64(row_bytes) != 0
        for index in tables[damaged].tolist():
            self._table(index, row_bytes, "relocation")  # raises an error that names the defect
        self._check_overlap(size)
        ranges = zip(offset.tolist(), (offset + size).tolist(), strict=True)
        rows = self._layout.read(b"".join([self._data[begin:end] for begin, end in ranges]), _RELA)
        section = np.repeat(headers["info"].astype(np.int64), (size // np.uint64(row_bytes)).astype(np.int64))
        return Relocations(
            section, rows["offset"], rows["type"].astype(np.int64), rows["symbol"].astype(np.int64), rows["addend"]
        )

    def _implicit(self, table: int, widths: Mapping[int, int]) -> Relocations:
        """Return the relocations of the SHT_REL section `table`, whose addends are in the words that they modify."""
        target = int(self._sections["info"][table])
        rows = self._layout.read(self._table(table, self._layout.tables[_REL].itemsize, "relocation"), _REL)
        rows = rows[np.isin(rows["type"], list(widths))]
        words = np.frombuffer(self.contents(target), np.uint8)
        width = np.array([widths[kind] for kind in rows["type"].tolist()], np.int64)
        if ((rows["offset"] < 0) | (rows["offset"] > len(words) - width)).any():
            raise ElfError(f"a relocation of section {target} is outside of the section")
        addend = np.zeros(len(rows), np.int64)
        for size in set(width.tolist()):
            offsets = rows["offset"][width == size]
            addend[width == size] = words[offsets[:, None] + np.arange(size)].view(f"{self._layout.order}i{size}")[:, 0]
        return Relocations(
            np.full(len(rows), target, np.int64),
            rows["offset"],
            rows["type"].astype(np.int64),
            rows["symbol"].astype(np.int64),
            addend,
        )

    def _symbol_table(self) -> tuple[int, int]:
        """Return the section indices of the symbol table and of its string table."""
        if _SHT_SYMTAB not in self._type:
            raise ElfError("this ELF file has no symbol table")
        table = self._type.index(_SHT_SYMTAB)
        self._table(table, self._layout.tables[_SYMBOL].itemsize, "symbol")
        if self._link[table] >= len(self._type):
            raise ElfError(f"symbol names are in section {self._link[table]}, but there are {len(self._type)} sections")
        return table, self._link[table]

    def _extended_sections(self, table: int, symbols: int) -> NDArray[np.int64]:
        """Return the section of each symbol of an object with 65,280 or more sections (gABI, extended numbering)."""
        for index, (kind, link) in enumerate(zip(self._type, self._link, strict=True)):
            if kind == _SHT_SYMTAB_SHNDX and link == table:
                sections = np.frombuffer(self._table(index, 4, "section index"), f"{self._layout.order}u4")
                if len(sections) == symbols:
                    return sections.astype(np.int64)
        raise ElfError("the symbol table's section indices are missing")

    def _table(self, index: int, entry_bytes: int, what: str) -> memoryview:
        """Return the contents of section `index`, a table with entries of `entry_bytes`."""
        if self._entry_size[index] != entry_bytes or self._size[index] % entry_bytes:
            raise ElfError(
                f"{what} table {index} has {self._size[index]} bytes and entries of {self._entry_size[index]} bytes"
            )
        return self.contents(index)


def _read_names(table: bytes, offsets: NDArray[np.int64]) -> list[str]:
    """Return the names at the offsets of a string table; bytes that are not UTF-8 become surrogates."""
    if not len(offsets):
        return []
    terminators = np.flatnonzero(np.frombuffer(table, np.uint8) == 0)
    rows = np.searchsorted(terminators, offsets)
    if rows.max() == len(terminators):
        raise ElfError(f"a name is not terminated in a string table of {len(table)} bytes")
    ends = terminators[rows]
    # A name may be the end of another one, and of many symbols; not so often that a small file fills the memory.
    if (total := int((ends - offsets).sum())) > MAX_NAMES_PER_BYTE * len(table) + MAX_SHARED_NAMES_BYTES:
        raise ElfError(f"names of {total} bytes are in a string table of {len(table)} bytes")
    ranges = zip(offsets.tolist(), ends.tolist(), strict=True)
    return [str(table[begin:end], "utf-8", "surrogateescape") for begin, end in ranges]
