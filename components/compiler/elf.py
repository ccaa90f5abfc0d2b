"""Reads ELF objects and linked files in-process: sections, native text size, function sizes.

Layouts are those of the System V ABI (gABI) chapters 4 and 5, 64-bit little-endian only: the targets that the
advisors are trained for. Nothing here starts a process.
"""

from __future__ import annotations

from collections.abc import Iterable

from components.console import UserError

_HEADER_BYTES = 64
_SECTION_BYTES = 64
_SYMBOL_BYTES = 24
_SHT_SYMTAB = 2
_SHT_NOBITS = 8
_SHF_WRITE = 0x1
_SHF_ALLOC = 0x2
_SHF_EXECINSTR = 0x4
_SHN_UNDEF = 0
_SHN_XINDEX = 0xFFFF
_STT_FUNC = 2


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
        if entry_size != _SECTION_BYTES:
            raise ElfError(f"section headers of {entry_size} bytes, expected {_SECTION_BYTES}")
        # Objects with 65,280 sections or more keep the real numbers in section 0 (gABI, extended numbering).
        if count == 0 or names_index == _SHN_XINDEX:
            first = self._bytes(offset, _SECTION_BYTES, "section header 0")
            count = count or int.from_bytes(first[32:40], "little")
            if names_index == _SHN_XINDEX:
                names_index = int.from_bytes(first[40:44], "little")
        headers = self._bytes(offset, count * _SECTION_BYTES, "section headers")
        # Columns of the table, each taken in one go: sixteen 4-byte or eight 8-byte words a header. The words are
        # the host's, and every host that clang's advisors are trained on is little-endian.
        narrow, wide = headers.cast("I"), headers.cast("Q")
        self._name = narrow[0::16].tolist()
        self._type = narrow[1::16].tolist()
        self._flags = wide[1::8].tolist()
        self._offset = wide[3::8].tolist()
        self._size = wide[4::8].tolist()
        self._link = narrow[10::16].tolist()
        self._entry_size = wide[7::8].tolist()
        if names_index >= count:
            raise ElfError(f"section name table {names_index} of {count} sections")
        self._names = bytes(self._contents(names_index))

    def _bytes(self, offset: int, size: int, what: str) -> memoryview:
        end = offset + size
        if end > len(self._data):
            raise ElfError(f"truncated ELF file: {what} ends at byte {end}, the file has {len(self._data)}")
        return self._data[offset:end]

    def _contents(self, index: int) -> memoryview:
        if self._type[index] == _SHT_NOBITS:
            raise ElfError(f"section {index} has no bytes in the file (SHT_NOBITS)")
        return self._bytes(self._offset[index], self._size[index], f"section {index}")

    def section(self, name: str) -> memoryview | None:
        """Contents of the first section called `name` (a view into `data`), None where there is none."""
        wanted = name.encode() + b"\0"
        # A name may also be the tail of another ("text" in ".text"), so every occurrence is a candidate.
        candidates, at = set(), self._names.find(wanted)
        while at >= 0:
            candidates.add(at)
            at = self._names.find(wanted, at + 1)
        for index, offset in enumerate(self._name):
            if offset in candidates:
                return self._contents(index)
        return None

    def text_size(self) -> int:
        """Bytes of native text exactly as `llvm-size` (Berkeley format) counts them.

        That is LLVM's ObjectFile::isBerkeleyText: allocated, and executable or not writable; so read-only
        data and unwind tables count too.
        """
        return sum(
            size
            for size, flags in zip(self._size, self._flags, strict=True)
            if flags & _SHF_ALLOC and (flags & _SHF_EXECINSTR or not flags & _SHF_WRITE)
        )

    def section_sizes(self, allocated_only: bool = False) -> dict[str, int]:
        """Bytes of every named section; sections of one name (COMDAT copies) are summed.

        `allocated_only` leaves what a loader maps (SHF_ALLOC): what a user ships and runs.
        """
        return _sum_by_name(
            self._names,
            (
                (name, size)
                for name, size, flags in zip(self._name, self._size, self._flags, strict=True)
                if name and (flags & _SHF_ALLOC or not allocated_only)
            ),
        )

    def function_sizes(self) -> dict[str, int]:
        """Bytes of each function defined here, by symbol name; an empty dict if there is no symbol table.

        Local functions of one name are summed; aliases (such as the two names of a constructor) each have
        the whole size.
        """
        if _SHT_SYMTAB not in self._type:
            return {}
        table = self._type.index(_SHT_SYMTAB)
        size, link = self._size[table], self._link[table]
        if self._entry_size[table] != _SYMBOL_BYTES or size % _SYMBOL_BYTES or link >= len(self._type):
            raise ElfError("the symbol table's header is corrupt")
        symbols = self._contents(table)
        strings = bytes(self._contents(link))
        # A symbol: name (4 bytes), info, other (1 each), section index (2), value, size (8 each).
        narrow, wide = symbols.cast("I"), symbols.cast("Q")
        return _sum_by_name(
            strings,
            (
                (name, size)
                for name, info, size in zip(
                    narrow[0::6].tolist(), narrow[1::6].tolist(), wide[2::3].tolist(), strict=True
                )
                if info & 0xF == _STT_FUNC and info >> 16 != _SHN_UNDEF
            ),
        )


def _sum_by_name(strings: bytes, entries: Iterable[tuple[int, int]]) -> dict[str, int]:
    """Sum the sizes of entries (offset of the name in `strings`, size) by name."""
    sizes: dict[str, int] = {}
    for offset, size in entries:
        end = strings.find(b"\0", offset)
        if end < 0:
            raise ElfError(f"a name at byte {offset} of a string table of {len(strings)} bytes does not end")
        name = strings[offset:end].decode("utf-8", "surrogateescape")
        sizes[name] = sizes.get(name, 0) + size
    return sizes
