"""Reads ELF objects and linked files in-process: sections, native text size, function sizes.

Layouts are those of the System V ABI (gABI) chapters 4 and 5, 64-bit little-endian only: the targets that the
advisors are trained for. Nothing here starts a process.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from components.console import UserError

_SECTION_HEADER = np.dtype(
    [
        ("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("addr", "<u8"), ("offset", "<u8"),
        ("size", "<u8"), ("link", "<u4"), ("info", "<u4"), ("align", "<u8"), ("entsize", "<u8"),
    ]
)  # fmt: skip
_SYMBOL = np.dtype(
    [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("shndx", "<u2"), ("value", "<u8"), ("size", "<u8")]
)
_HEADER_BYTES = 64
_SHT_SYMTAB = 2
_SHT_NOBITS = 8
_SHF_WRITE = 0x1
_SHF_ALLOC = 0x2
_SHF_EXECINSTR = 0x4
_SHN_UNDEF = 0
_SHN_XINDEX = 0xFFFF
_STT_FUNC = 2

Array = npt.NDArray[Any]


class ElfError(UserError):
    """The bytes are not an ELF file that can be read; says what is wrong with them."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem, "build it again with clang for a 64-bit ELF target, without -flto")
        self.args = (problem,)  # so that the error pickles


class Elf:
    """One ELF file in memory.

    Only the header and the section headers are read at construction; `data` may be an mmap's memoryview, so
    that pages that nobody asks for are never read. `ElfError`, here or in any method, for anything malformed.
    """

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = memoryview(data)
        size = len(self._data)
        magic = bytes(self._data[:4])
        if magic in (b"BC\xc0\xde", b"\xde\xc0\x17\x0b"):
            raise ElfError("this is LLVM bitcode, not an ELF object")
        if magic != b"\x7fELF":
            raise ElfError(f"this is not an ELF file: it begins with {magic!r}")
        if size < _HEADER_BYTES:
            raise ElfError(f"truncated ELF file: {size} bytes, the header alone has {_HEADER_BYTES}")
        if bytes(self._data[4:6]) != b"\x02\x01":
            raise ElfError("this ELF file is not 64-bit little-endian")
        offset = int.from_bytes(self._data[40:48], "little")
        entry_size = int.from_bytes(self._data[58:60], "little")
        count = int.from_bytes(self._data[60:62], "little")
        names_index = int.from_bytes(self._data[62:64], "little")
        if offset == 0:
            raise ElfError("this ELF file has no section headers")
        if entry_size != _SECTION_HEADER.itemsize:
            raise ElfError(f"section headers of {entry_size} bytes, expected {_SECTION_HEADER.itemsize}")
        # Objects with 65,280 sections or more keep the real numbers in section 0 (gABI, extended numbering).
        if count == 0 or names_index == _SHN_XINDEX:
            first = self._table(_SECTION_HEADER, offset, 1, "section header 0")[0]
            count = count or int(first["size"])
            names_index = int(first["link"]) if names_index == _SHN_XINDEX else names_index
        self._sections = self._table(_SECTION_HEADER, offset, count, "section headers")
        if names_index >= count:
            raise ElfError(f"section name table {names_index} of {count} sections")
        self._names = bytes(self._contents(names_index))

    def _table(self, dtype: np.dtype[Any], offset: int, count: int, what: str) -> Array:
        end = offset + count * dtype.itemsize
        if end > len(self._data):
            raise ElfError(f"truncated ELF file: {what} end at byte {end}, the file has {len(self._data)}")
        return np.frombuffer(self._data, dtype, count, offset)

    def _contents(self, index: int) -> memoryview:
        header = self._sections[index]
        if header["type"] == _SHT_NOBITS:
            raise ElfError(f"section {index} has no bytes in the file (SHT_NOBITS)")
        start, end = int(header["offset"]), int(header["offset"]) + int(header["size"])
        if end > len(self._data):
            size = len(self._data)
            raise ElfError(f"truncated ELF file: section {index} ends at byte {end}, the file has {size}")
        return self._data[start:end]

    def section(self, name: str) -> memoryview | None:
        """Contents of the first section called `name` (a view into `data`), None where there is none."""
        wanted = name.encode() + b"\0"
        # A name may also be the tail of another ("text" in ".text"), so every occurrence is a candidate.
        candidates, at = [], self._names.find(wanted)
        while at >= 0:
            candidates.append(at)
            at = self._names.find(wanted, at + 1)
        found = np.flatnonzero(np.isin(self._sections["name"], candidates))
        return self._contents(int(found[0])) if len(found) else None

    def text_size(self) -> int:
        """Bytes of native text exactly as `llvm-size` (Berkeley format) counts them.

        That is LLVM's ObjectFile::isBerkeleyText: allocated, and executable or not writable; so read-only
        data and unwind tables count too.
        """
        flags = self._sections["flags"]
        text = (flags & _SHF_ALLOC != 0) & ((flags & _SHF_EXECINSTR != 0) | (flags & _SHF_WRITE == 0))
        return int(self._sections["size"][text].sum())

    def section_sizes(self, allocated_only: bool = False) -> dict[str, int]:
        """Bytes of every named section; sections of one name (COMDAT copies) are summed.

        `allocated_only` leaves what a loader maps (SHF_ALLOC): what a user ships and runs.
        """
        chosen = self._sections[self._sections["name"] != 0]
        if allocated_only:
            chosen = chosen[chosen["flags"] & _SHF_ALLOC != 0]
        return _sum_by_name(self._names, chosen)

    def function_sizes(self) -> dict[str, int]:
        """Bytes of each function defined here, by symbol name; an empty dict if there is no symbol table.

        Local functions of one name are summed; aliases (such as the two names of a constructor) each have
        the whole size.
        """
        tables = np.flatnonzero(self._sections["type"] == _SHT_SYMTAB)
        if not len(tables):
            return {}
        header = self._sections[int(tables[0])]
        size, link = int(header["size"]), int(header["link"])
        wrong_entries = int(header["entsize"]) != _SYMBOL.itemsize or size % _SYMBOL.itemsize
        if wrong_entries or link >= len(self._sections):
            raise ElfError("the symbol table's header is corrupt")
        symbols = self._table(_SYMBOL, int(header["offset"]), size // _SYMBOL.itemsize, "symbols")
        strings = bytes(self._contents(link))
        functions = symbols[(symbols["info"] & 0xF == _STT_FUNC) & (symbols["shndx"] != _SHN_UNDEF)]
        return _sum_by_name(strings, functions)


def _sum_by_name(strings: bytes, records: Array) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for offset, size in zip(records["name"].tolist(), records["size"].tolist(), strict=True):
        name = _string(strings, offset)
        sizes[name] = sizes.get(name, 0) + size
    return sizes


def _string(table: bytes, offset: int) -> str:
    end = table.find(b"\0", offset)
    if end < 0:
        raise ElfError(f"a name at byte {offset} of a string table of {len(table)} bytes does not end")
    return table[offset:end].decode("utf-8", "surrogateescape")
