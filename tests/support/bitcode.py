"""Creates bitcode with valid block lengths, but without content that LLVM could read."""

from __future__ import annotations


def bitcode(content: bytes = b"") -> bytes:
    """Return the magic, a module block with `content` and an empty string table."""
    words = content + bytes(-len(content) % 4)
    return b"BC\xc0\xde" + _block(8, words) + _block(23, bytes(4))


def identified(producer: bytes) -> bytes:
    """Return the same, without content, but with an identification block whose producer is not abbreviated."""
    bits = size = 0

    def emit(value: int, width: int) -> None:
        nonlocal bits, size
        bits |= value << size
        size += width

    def emit_vbr6(value: int) -> None:
        while value >= 32:
            emit(value & 31 | 32, 6)
            value >>= 5
        emit(value, 6)

    emit(2, 5)  # DEFINE_ABBREV: three operands, the literal 1, an array, of char6
    emit(3, 5)
    emit(1 | 1 << 1, 9)
    emit(3 << 1, 4)
    emit(4 << 1, 4)
    emit(3, 5)  # UNABBREV_RECORD
    emit_vbr6(1)
    emit_vbr6(len(producer))
    for byte in producer:
        emit_vbr6(byte)
    content = bits.to_bytes((size + 31) // 32 * 4, "little")
    whole = bitcode()
    return whole[:4] + _block(13, content) + whole[4:]


def _block(number: int, content: bytes) -> bytes:
    header = (1 | number << 2 | 3 << 10).to_bytes(4, "little")  # ENTER_SUBBLOCK in 2 bits, its id in 8, a width in 4
    return header + (len(content) // 4).to_bytes(4, "little") + content
