"""Creates bitcode with valid block lengths, but without content that LLVM could read."""

from __future__ import annotations


def bitcode(content: bytes = b"") -> bytes:
    """Return the magic, a module block with `content` and an empty string table."""
    words = content + bytes(-len(content) % 4)
    return b"BC\xc0\xde" + _block(8, words) + _block(23, bytes(4))


def _block(number: int, content: bytes) -> bytes:
    header = (1 | number << 2 | 3 << 10).to_bytes(4, "little")  # ENTER_SUBBLOCK in 2 bits, its id in 8, a width in 4
    return header + (len(content) // 4).to_bytes(4, "little") + content
