"""Checks that a file is complete LLVM bitcode, by the lengths that its top-level blocks declare.

LLVM's bitstream (llvm.org/docs/BitCodeFormat.html) is the magic, optionally inside a wrapper that declares offset and
size, followed by blocks, each with its length in words. Following these lengths reads a few bytes of each module, 20
µs, and finds every truncated file. Errors inside a block are found only by LLVM's reader (llvm-bcanalyzer takes 10 to
200 ms).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

MAGIC = b"BC\xc0\xde"
WRAPPER = b"\xde\xc0\x17\x0b"
_WRAPPER_BYTES = 20
_ENTER_SUBBLOCK = 1
MODULE_BLOCK, IDENTIFICATION_BLOCK, STRTAB_BLOCK = 8, 13, 23
_HEADER_BYTES = 16
"""Maximum size of a block header: abbreviation id, block id, abbreviation width (together at most 5 bytes), length."""

Read = Callable[[int, int], bytes]
"""Function that returns the given number of bytes at an offset, fewer at the end of the file."""


_UNABBREVIATED, _FIRST_ABBREVIATION = 3, 4
_IDENTIFICATION_BITS = 5
"""Width of abbreviation ids in the identification block."""
_STRING_ABBREVIATION_BITS = 5 + 5 + 9 + 4 + 4
"""DEFINE_ABBREV with three operands: a literal code, an array, and its elements, which are char6."""
_CHAR6 = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
_PRODUCER = re.compile(r"LLVM(\d+)\.")
_MAX_PRODUCER_BYTES = 400
_MAX_PADDING_BYTES = 16
"""Maximum alignment of an object's bitcode in the section of a linked file."""


def reader(content: bytes | memoryview) -> Read:
    """Return the function that reads bitcode in memory."""
    return lambda offset, length: bytes(content[offset : offset + length])


def is_bitcode(start: bytes | memoryview) -> bool:
    """Return whether a file that starts with these 4 or more bytes is LLVM bitcode, with or without a wrapper."""
    return bytes(start[:4]) in (MAGIC, WRAPPER)


@dataclass(frozen=True)
class Block:
    """A top-level block of a module: its id, and the bytes [start, end) that its header and its content take."""

    id: int
    start: int
    end: int


@dataclass(frozen=True)
class Bitcode:
    """The layout of one module's bitcode: the bytes [start, end), without a wrapper, and its top-level blocks."""

    start: int
    end: int
    blocks: tuple[Block, ...]


class BitcodeError(Exception):
    """The bytes are not complete bitcode; the message is the rest of a sentence about them."""


def read_layout(read: Read, size_bytes: int) -> list[Bitcode]:
    """Return the layout of each module: a linker that joins sections (`ld -r`) puts one after the other.

    Args:
        read: returns bytes of the bitcode.
        size_bytes: size of the whole file or section.

    Raises:
        BitcodeError: it is not bitcode, or incomplete.
    """
    start, end = 0, size_bytes
    if read(0, 4) == WRAPPER:
        header = read(0, _WRAPPER_BYTES)
        start, length = int.from_bytes(header[8:12], "little"), int.from_bytes(header[12:16], "little")
        if len(header) < _WRAPPER_BYTES or start < _WRAPPER_BYTES or start + length > size_bytes:
            raise BitcodeError(f"is truncated: its wrapper declares {start + length} bytes, the file has {size_bytes}")
        end = start + length
    if read(start, 4) != MAGIC:
        raise BitcodeError("is not bitcode")
    modules: list[Bitcode] = []
    blocks: list[Block] = []
    at = start + 4
    # As in LLVM's reader, up to 8 bytes after the last block are padding.
    while at + 8 < end:
        block, length = _block_header(read(at, _HEADER_BYTES))
        if block is None:
            following = read(at, _MAX_PADDING_BYTES).lstrip(b"\0")
            if not following.startswith(MAGIC):
                raise BitcodeError(f"is damaged: no block starts at byte {at}")
            modules.append(_complete(start, at, blocks))
            start = at + min(_MAX_PADDING_BYTES, end - at) - len(following)
            at, blocks = start + 4, []
            continue
        if at + length > end:
            raise BitcodeError(f"is truncated: a block ends at byte {at + length} of {end}")
        blocks.append(Block(block, at, at + length))
        at += length
    modules.append(_complete(start, end, blocks))
    return modules


def _complete(start: int, end: int, blocks: list[Block]) -> Bitcode:
    if not {MODULE_BLOCK, STRTAB_BLOCK} <= {block.id for block in blocks}:
        raise BitcodeError("is truncated: it has no module with a string table")
    return Bitcode(start, end, tuple(blocks))


def bitcode_problem(read: Read, size_bytes: int) -> str | None:
    """Return why this is not the bitcode of one complete module, None if it is. Arguments as for `read_layout`."""
    try:
        modules = read_layout(read, size_bytes)
    except BitcodeError as error:
        return str(error)
    return None if len(modules) == 1 else f"holds {len(modules)} modules, one after the other"


def producer_major(read: Read, module: Bitcode) -> int:
    """Return the major version of the LLVM that wrote a module, which only that or a later LLVM is sure to read.

    The identification block, the first one, has the producer as a record of a string: "LLVM19.1.7". Returns 0 if
    another program than LLVM wrote it.
    """
    if not module.blocks or module.blocks[0].id != IDENTIFICATION_BLOCK:
        return 0
    block = module.blocks[0]
    bits = int.from_bytes(read(block.start + 8, min(block.end - block.start - 8, _MAX_PRODUCER_BYTES)), "little")
    bits >>= _STRING_ABBREVIATION_BITS
    use, at = bits & 31, _IDENTIFICATION_BITS
    if use == _UNABBREVIATED:  # the name has a character that is not char6
        _code, at = _vbr(bits, at, 6)
    elif use != _FIRST_ABBREVIATION:
        return 0
    length, at = _vbr(bits, at, 6)
    text = ""
    for _ in range(min(length, _MAX_PRODUCER_BYTES)):
        if use == _UNABBREVIATED:
            value, at = _vbr(bits, at, 6)
            text += chr(value & 0xFF)
        else:
            text += _CHAR6[bits >> at & 63]
            at += 6
    match = _PRODUCER.match(text)
    return int(match[1]) if match else 0


def _block_header(header: bytes) -> tuple[int | None, int]:
    """Return (block id, bytes of the block including its header); the id is None if this is not a block."""
    bits = int.from_bytes(header, "little")
    if bits & 3 != _ENTER_SUBBLOCK:
        return None, 0
    block, at = _vbr(bits, 2, 8)
    _width, at = _vbr(bits, at, 4)
    at = (at + 31) // 32 * 4  # the length is in the next word
    if at + 4 > len(header):
        return block, 1 << 62  # the file ends before the length
    return block, at + 4 + 4 * int.from_bytes(header[at : at + 4], "little")


def _vbr(bits: int, at: int, width: int) -> tuple[int, int]:
    """Decode a number (below 2^32) in LLVM's variable-width encoding; return it and the position of the next bit."""
    value = shift = 0
    more = 1 << (width - 1)
    while shift < 32:
        chunk = (bits >> at) & (2 * more - 1)
        at += width
        value |= (chunk & (more - 1)) << shift
        shift += width - 1
        if not chunk & more:
            break
    return value, at
