"""Checks that a file is complete LLVM bitcode, by the lengths that its top-level blocks declare.

LLVM's bitstream (llvm.org/docs/BitCodeFormat.html) is the magic, optionally inside a wrapper that declares offset and
size, followed by blocks, each with its length in words. Following these lengths reads a few bytes of each module, 20
µs, and finds every truncated file. Errors inside a block are found only by LLVM's reader (llvm-bcanalyzer takes 10 to
200 ms).
"""

from __future__ import annotations

from collections.abc import Callable

MAGIC = b"BC\xc0\xde"
WRAPPER = b"\xde\xc0\x17\x0b"
_WRAPPER_BYTES = 20
_ENTER_SUBBLOCK = 1
_MODULE_BLOCK, _STRTAB_BLOCK = 8, 23
_HEADER_BYTES = 16
"""Maximum size of a block header: abbreviation id, block id, abbreviation width (together at most 5 bytes), length."""

Read = Callable[[int, int], bytes]
"""Function that returns the given number of bytes at an offset, fewer at the end of the file."""


def bitcode_problem(read: Read, size_bytes: int) -> str | None:
    """Return what is wrong with bitcode, None if nothing is.

    Args:
        read: returns bytes of the bitcode.
        size_bytes: size of the whole file or section.
    """
    start, end = 0, size_bytes
    magic = read(0, 4)
    if magic == WRAPPER:
        header = read(0, _WRAPPER_BYTES)
        start, length = int.from_bytes(header[8:12], "little"), int.from_bytes(header[12:16], "little")
        if len(header) < _WRAPPER_BYTES or start < _WRAPPER_BYTES or start + length > size_bytes:
            return f"is truncated: its wrapper declares {start + length} bytes, the file has {size_bytes}"
        end = start + length
        magic = read(start, 4)
    if magic != MAGIC:
        return "is not bitcode"
    blocks: set[int] = set()
    at = start + 4
    # As in LLVM's reader, up to 8 bytes after the last block are padding.
    while at + 8 < end:
        header = read(at, _HEADER_BYTES)
        block, content = _block_header(header)
        if block is None:
            if read(at, 4) == MAGIC:  # another module follows: `ld -r` concatenates sections
                at += 4
                continue
            return f"is damaged: no block starts at byte {at}"
        at += content
        if at > end:
            return f"is truncated: a block ends at byte {at} of {end}"
        blocks.add(block)
    if _MODULE_BLOCK not in blocks or _STRTAB_BLOCK not in blocks:
        return "is truncated: it has no module with a string table"
    return None


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
