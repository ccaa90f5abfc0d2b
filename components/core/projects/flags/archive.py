"""Reads the members of a static library (`ar` archive, System V / GNU format) in-process."""

from __future__ import annotations

from collections.abc import Iterator

from components.platform.errors import UserError

MAGIC = b"!<arch>\n"
THIN_MAGIC = b"!<thin>\n"
_HEADER_BYTES = 60
_INDEX_NAMES = (b"/", b"//", b"/SYM64/")  # symbol index and table of long names: no code in them


def is_archive(start: bytes | memoryview) -> bool:
    """Return whether a file that starts with these 8 or more bytes is a static library, thin or not."""
    return bytes(start[:8]) in (MAGIC, THIN_MAGIC)


def members(data: memoryview) -> Iterator[memoryview]:
    """Yield the contents of each object file in an archive, in order.

    Format: 60-byte headers (name 16, ..., size in decimal at byte 48 for 10, terminator "`\\n"), contents padded to
    an even length (System V ABI, chapter 7).

    Raises:
        UserError: not an archive, a thin archive (its members are separate files), or truncated.
    """
    if bytes(data[:8]) == THIN_MAGIC:
        raise UserError("a thin archive does not contain its members", "build the library without the T modifier of ar")
    if bytes(data[:8]) != MAGIC:
        raise UserError("not a static library: it does not begin with !<arch>")
    offset = len(MAGIC)
    while offset < len(data):
        header = bytes(data[offset : offset + _HEADER_BYTES])
        size_field = header[48:58].strip()
        if len(header) < _HEADER_BYTES or header[58:60] != b"`\n" or not size_field.isdigit():
            raise UserError(f"corrupt static library: no member header at byte {offset}", "build the library again")
        start = offset + _HEADER_BYTES
        end = start + int(size_field)
        if end > len(data):
            raise UserError(
                f"truncated static library: the member at byte {offset} ends at {end} of {len(data)}",
                "build the library again",
            )
        if header[:16].rstrip() not in _INDEX_NAMES:
            yield data[start:end]
        offset = end + end % 2
