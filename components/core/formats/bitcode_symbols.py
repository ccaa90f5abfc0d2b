"""Reads the names that a module's bitcode defines, and digests of its functions' bodies, without LLVM's libraries.

Clang's bitcode ends with a symbol table for linkers (llvm/Object/IRSymtab.h), a blob in a block of its own, whose
strings are in the string table. Its layout is the same in LLVM 7 to 22. A module's functions are consecutive blocks
that start at multiples of four bytes, at the end of the module's block.
"""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass

import numpy as np

from components.core.formats.bitcode import (
    MODULE_BLOCK,
    STRTAB_BLOCK,
    Bitcode,
    BitcodeError,
    Block,
    read_layout,
    reader,
)

_SYMTAB_BLOCK = 25
_VERSIONS = (1, 2, 3)
_HEADER = struct.Struct("<19I")
"""Version; the producer; the ranges of modules, COMDATs, symbols, uncommon symbols; triple, source, linker options. All
but the version are an offset and a size."""
_SYMBOL_WORDS = 6
_VERSION = re.compile(rb"\d+")
_UNDEFINED, _WEAK, _COMMON, _GLOBAL, _FORMAT_SPECIFIC, _EXECUTABLE = (1 << bit for bit in (3, 4, 5, 10, 11, 13))
_FUNCTION_WORD, _WIDTH_BITS = 1 | 12 << 3, 7 << 11
"""The first word of a function's block: ENTER_SUBBLOCK and its id; and the bits of the width of its abbreviations."""
_MAX_STARTS = 64
"""Constants that look like the start of a function's block precede the first function rarely."""
_MAX_BYTES_AFTER_FUNCTIONS = 32
"""A module's hash and the end of its block."""
_MAX_NAMES_PER_BYTE = 8
"""Limit of the bytes of names for each byte of the string table, which they rarely share."""
_BLOB_ABBREVIATION_BITS = 3 + 5 + 9 + 4
"""DEFINE_ABBREV with two operands: a literal code and a blob."""


@dataclass(frozen=True)
class ModuleSymbols:
    """Names and functions that a module defines.

    Attributes:
        source: name of the source file as the compiler was given it, "" if unknown.
        strong: names of the functions that only one object of a program can define.
        local: names of the functions that other objects cannot refer to.
        discardable: names of functions and variables that the compiler may drop if nothing refers to them: local ones,
            and weak ones, of which some linkages are kept.
        bodies: digest of the bodies of all functions, "" if there are none or they were not found. Modules with equal
            digests have equal functions, whatever their sources, linkages and relocation models are.
        llvm_major: version of the LLVM that wrote it, 0 if unknown.
        triple: the target that it was compiled for, "" if unknown.
    """

    source: str
    strong: frozenset[str]
    local: frozenset[str]
    discardable: frozenset[str]
    bodies: str
    llvm_major: int
    triple: str = ""


UNKNOWN = ModuleSymbols("", frozenset(), frozenset(), frozenset(), "", 0)


def read_symbols(content: bytes) -> ModuleSymbols:
    """Return what the module `content` defines; UNKNOWN if it has no symbol table, or one that no LLVM above writes."""
    try:
        (module,) = read_layout(reader(content), len(content))
        return _read(content, module)
    except (BitcodeError, ValueError, struct.error):
        return UNKNOWN


def _read(content: bytes, module: Bitcode) -> ModuleSymbols:
    blocks = {block.id: block for block in module.blocks}
    if len(blocks) < len(module.blocks) or _SYMTAB_BLOCK not in blocks:
        return UNKNOWN  # several modules in one file, or no symbol table
    symtab = _blob(content, blocks[_SYMTAB_BLOCK])
    strings = _blob(content, blocks[STRTAB_BLOCK])
    header = _HEADER.unpack_from(symtab)
    if header[0] not in _VERSIONS:
        return UNKNOWN
    begin, count = header[7:9]
    source_begin, source_bytes = header[13:15]
    triple_begin, triple_bytes = header[11:13]
    rows = np.frombuffer(symtab, "<u4", count * _SYMBOL_WORDS, begin).reshape(count, _SYMBOL_WORDS)
    flags = rows[:, 5]
    function = (flags & (_EXECUTABLE | _UNDEFINED | _FORMAT_SPECIFIC)) == _EXECUTABLE
    strong = function & ((flags & (_GLOBAL | _WEAK | _COMMON)) == _GLOBAL)
    local = function & ((flags & _GLOBAL) == 0)
    defined = (flags & (_UNDEFINED | _FORMAT_SPECIFIC)) == 0
    discardable = defined & (((flags & _GLOBAL) == 0) | ((flags & _WEAK) != 0))

    def names(chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> frozenset[str]:
        spans = rows[chosen][:, :2].tolist()
        if sum(size for _, size in spans) > _MAX_NAMES_PER_BYTE * len(strings):
            raise ValueError("names share bytes too often: a small file would fill the memory")
        return frozenset(strings[at : at + size].decode("utf-8", "surrogateescape") for at, size in spans)

    source = strings[source_begin : source_begin + source_bytes].decode("utf-8", "surrogateescape")
    producer = _VERSION.search(strings[header[1] : header[1] + header[2]])
    return ModuleSymbols(
        source,
        names(strong),
        names(local),
        names(discardable),
        _bodies(content, blocks[MODULE_BLOCK]),
        int(producer[0]) if producer else 0,
        strings[triple_begin : triple_begin + triple_bytes].decode("utf-8", "surrogateescape"),
    )


def _blob(content: bytes, block: Block) -> bytes:
    """Return the only record of a block, a blob: an abbreviation's definition, its use, the length in 6-bit groups."""
    at = block.start + 8
    bits = int.from_bytes(content[at : at + 16], "little") >> _BLOB_ABBREVIATION_BITS
    length = shift = 0
    used = _BLOB_ABBREVIATION_BITS + 3
    bits >>= 3
    more = True
    while more:
        length |= (bits & 31) << shift
        more = bool(bits & 32)
        bits, shift, used = bits >> 6, shift + 5, used + 6
    begin = at + (used + 31) // 32 * 4
    if begin + length > block.end:
        raise ValueError("not a blob")
    return content[begin : begin + length]


def _bodies(content: bytes, block: Block) -> str:
    """Return the digest of the functions' blocks, in their order, "" if there are none."""
    words = np.frombuffer(content, "<u4", (block.end - block.start) // 4, block.start)
    starts = np.flatnonzero((words & np.uint32(0xFFFFFFFF ^ _WIDTH_BITS)) == _FUNCTION_WORD)
    for first in starts[:_MAX_STARTS].tolist():
        at = block.start + first * 4
        # The last word of a module's block ends it; other blocks may follow the functions.
        while at + 8 <= block.end and content[at] & 3 == 1:
            at += 8 + 4 * int.from_bytes(content[at + 4 : at + 8], "little")
        if at <= block.end <= at + _MAX_BYTES_AFTER_FUNCTIONS:
            return hashlib.sha256(content[block.start + first * 4 : at]).hexdigest()
    return ""
