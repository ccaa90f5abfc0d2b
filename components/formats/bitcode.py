"""Whether a file is whole LLVM bitcode, by the lengths that its top-level blocks state.

LLVM's bitstream (llvm.org/docs/BitCodeFormat.html): the magic, maybe inside a wrapper that states offset and size, then
blocks, each with its length in words. Following these lengths reads a few bytes of each module, 20 µs, and finds every
file that was cut off; what is wrong inside a block, only LLVM's reader finds (llvm-bcanalyzer takes 10 to 200 ms).
"""

from __future__ import annotations

from collections.abc import Callable

MAGIC = b"BC\xc0\xde"
WRAPPER = b"\xde\xc0\x17\x0b"
_WRAPPER_BYTES = 20
_ENTER_SUBBLOCK = 1
_MODULE_BLOCK, _STRTAB_BLOCK = 8, 23
_HEADER_BYTES = 16
"""Enough for a block's header: abbreviation id, block id, its abbreviations' width (5 bytes at most), its length."""

Read = Callable[[int, int], bytes]
"""The bytes at an offset, so many of them; fewer at the end."""


def bitcode_problem(read: Read, size_bytes: int) -> str | None:
    """Return what is wrong with bitcode, None if nothing is.

    Args:
        read: gives its bytes.
        size_bytes: of the whole file or section.
    """
    start, end = 0, size_bytes
    magic = read(0, 4)
    if magic == WRAPPER:
        header = read(0, _WRAPPER_BYTES)
        start, length = int.from_bytes(header[8:12], "little"), int.from_bytes(header[12:16], "little")
        if len(header) < _WRAPPER_BYTES or start < _WRAPPER_BYTES or start + length > size_bytes:
            return f"is cut off: its wrapper states {start + length} bytes, the file has {size_bytes}"
        end = start + length
        magic = read(start, 4)
    if magic != MAGIC:
        return "is not bitcode"
    blocks: set[int] = set()
    at = start + 4
    # As LLVM's reader does: up to 8 bytes behind the last block are padding.
    while at + 8 < end:
        header = read(at, _HEADER_BYTES)
        block, content = _block_header(header)
        if block is None:
            if read(at, 4) == MAGIC:  # another module behind this one, as `ld -r` joins sections
                at += 4
                continue
            return f"is damaged: there is no block at byte {at}"
        at += content
        if at > end:
            return f"is cut off: a block ends at byte {at} of {end}"
        blocks.add(block)
    if _MODULE_BLOCK not in blocks or _STRTAB_BLOCK not in blocks:
        return "is cut off: it has no module with a string table"
    return None


def _block_header(header: bytes) -> tuple[int | None, int]:
    """(block id, bytes of the block with its header); None for what is no block."""
    bits = int.from_bytes(header, "little")
    if bits & 3 != _ENTER_SUBBLOCK:
        return None, 0
    block, at = _vbr(bits, 2, 8)
    _width, at = _vbr(bits, at, 4)
    at = (at + 31) // 32 * 4  # the length stands in the next word
    if at + 4 > len(header):
        return block, 1 << 62  # the file ends before it
    return block, at + 4 + 4 * int.from_bytes(header[at : at + 4], "little")


def _vbr(bits: int, at: int, width: int) -> tuple[int, int]:
    """A number in LLVM's variable-width encoding (below 2^32), and the bit behind it."""
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
