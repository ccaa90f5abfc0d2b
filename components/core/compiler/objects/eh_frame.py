"""Reads .eh_frame: the size of each function's unwind information, and the code and LSDA that it refers to.

The format is defined by the Linux Standard Base, "Exception Frames". A section is a sequence of records, each a length
(4 bytes) and that many bytes: common information entries (CIE), which functions share, and one frame description entry
(FDE) per function. In an object the addresses in an FDE are relocations, so this module returns the offsets of the
fields instead of addresses.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from components.core.compiler.objects.elf import ORDERS, ElfError

_LENGTH_BYTES = 4
_ID_BYTES = 4
_OMITTED = 0xFF
_ABSOLUTE_POINTER = 0x0
"""Pointers with the width of an address."""
_POINTER_BYTES = {0x2: 2, 0x3: 4, 0x4: 8, 0xA: 2, 0xB: 4, 0xC: 8}
"""Width of a pointer in bytes, by the low four bits of its encoding (DW_EH_PE_*)."""


@dataclass(frozen=True)
class FrameDescriptions:
    """The FDEs [N] of one .eh_frame section; offsets are relative to the section.

    Attributes:
        size: int64, size in bytes, including the length field and the padding at the end.
        address: int64, offset of the field with the start address of the code.
        code_size: int64, size of the code in bytes, unless a relocation fills it in.
        code_size_at: int64, offset of the field with the size of the code.
        lsda: int64, offset of the field with the address of the exception table; -1 if there is none.
    """

    size: NDArray[np.int64]
    address: NDArray[np.int64]
    code_size: NDArray[np.int64]
    code_size_at: NDArray[np.int64]
    lsda: NDArray[np.int64]


def read_frame_descriptions(
    contents: memoryview, address_bytes: int = 8, byte_order: Literal["little", "big"] = "little"
) -> FrameDescriptions:
    """Return the FDEs of an .eh_frame section. ElfError if the section is damaged.

    Args:
        address_bytes: bytes of an address of the target, 4 or 8.
    """
    order = ORDERS[byte_order]
    starts, lengths = _records(contents, order)
    data = np.frombuffer(contents, np.uint8)
    start, length = np.array(starts, np.int64), np.array(lengths, np.int64)
    start, length = start[length > 0], length[length > 0]  # a length of 0 is a terminator
    if len(length) and length.min() < _ID_BYTES:
        raise ElfError(f".eh_frame has a record of {length.min()} bytes")
    # The second word is 0 in a CIE; in an FDE it is the distance from there back to its CIE.
    distance = _words(data, start + _LENGTH_BYTES, _ID_BYTES, order)
    is_cie = distance == 0
    cies, fde, size = start[is_cie], start[~is_cie], length[~is_cie] + _LENGTH_BYTES
    cie_ends = cies + length[is_cie] + _LENGTH_BYTES
    cie_start = fde + _LENGTH_BYTES - distance[~is_cie]
    cie = np.searchsorted(cies, cie_start)
    if len(fde) and (not len(cies) or (cies[np.minimum(cie, len(cies) - 1)] != cie_start).any()):
        raise ElfError(".eh_frame has an FDE without a CIE")
    ranges = zip(cies.tolist(), cie_ends.tolist(), strict=True)
    widths = [_field_widths(bytes(contents[begin:end]), address_bytes) for begin, end in ranges]
    address_width, lsda_bytes = np.array(widths, np.int64).reshape(-1, 2)[cie].T
    address = fde + _LENGTH_BYTES + _ID_BYTES
    # The address and the size of the code are followed by the length of the augmentation data (1 byte) and the address
    # of the LSDA.
    lsda = address + 2 * address_width + 1
    if (lsda - (lsda_bytes == 0) + lsda_bytes > fde + size).any():
        raise ElfError(".eh_frame has an FDE that is too short for its fields")
    code_size, code_size_at = np.zeros(len(fde), np.int64), address + address_width
    for width in set(address_width.tolist()):
        rows = address_width == width
        code_size[rows] = _words(data, code_size_at[rows], width, order)
    return FrameDescriptions(size, address, code_size, code_size_at, np.where(lsda_bytes > 0, lsda, -1))


def _records(contents: memoryview, order: str) -> tuple[list[int], list[int]]:
    """Return the offset of each record and its length, which does not include the length field."""
    starts, lengths, at, end = [], [], 0, len(contents)
    unpack = struct.Struct(f"{order}I").unpack_from
    while at + _LENGTH_BYTES <= end:
        (length,) = unpack(contents, at)
        starts.append(at)
        lengths.append(length)
        at += length + _LENGTH_BYTES
    if at != end:
        raise ElfError(f".eh_frame has {end} bytes, but a record ends at byte {at}")
    return starts, lengths


def _words(data: NDArray[np.uint8], offsets: NDArray[np.int64], width: int, order: str) -> NDArray[np.int64]:
    """Return int64 [N], the words of `width` bytes at `offsets`, which need not be aligned; `order` is "<" or ">"."""
    words = data[offsets[:, None] + np.arange(width)].view(f"{order}u{width}")[:, 0]
    return np.asarray(words.astype(np.int64))


def _field_widths(record: bytes, target_bytes: int) -> tuple[int, int]:
    """Return the bytes of an address and of the LSDA's address (0: no LSDA) in the FDEs of a CIE."""
    try:
        version, at = record[8], 9
        if version not in (1, 3):
            raise ElfError(f".eh_frame has a CIE of version {version}")
        end = record.index(b"\0", at)
        augmentation, at = record[at:end].decode("latin-1"), end + 1
        if not augmentation:
            return target_bytes, 0
        if augmentation[0] != "z":
            raise ElfError(f".eh_frame has a CIE with the augmentation {augmentation!r}")
        at = _skip_leb128(record, _skip_leb128(record, at))  # code and data alignment factors
        at = at + 1 if version == 1 else _skip_leb128(record, at)  # return address register
        at = _skip_leb128(record, at)  # length of the augmentation data
        address_bytes, lsda_bytes = target_bytes, 0
        for letter in augmentation[1:]:
            if letter == "R":
                address_bytes, at = _pointer_bytes(record[at], target_bytes), at + 1
            elif letter == "L":
                omitted = record[at] == _OMITTED
                lsda_bytes, at = 0 if omitted else _pointer_bytes(record[at], target_bytes), at + 1
            elif letter == "P":
                at += 1 + _pointer_bytes(record[at], target_bytes)
            elif letter not in "SBG":
                raise ElfError(f".eh_frame has a CIE with the augmentation {augmentation!r}")
        return address_bytes, lsda_bytes
    except (IndexError, ValueError):
        raise ElfError(".eh_frame has a CIE that is too short for its fields") from None


def _skip_leb128(record: bytes, at: int) -> int:
    """Return the offset after the LEB128 number at `at`. IndexError if the number is not terminated."""
    while record[at] & 0x80:
        at += 1
    return at + 1


def _pointer_bytes(encoding: int, target_bytes: int) -> int:
    """Return the width in bytes of a pointer with that encoding."""
    width = target_bytes if encoding & 0xF == _ABSOLUTE_POINTER else _POINTER_BYTES.get(encoding & 0xF)
    if width is None:
        raise ElfError(f".eh_frame has pointers with the unsupported encoding {encoding:#x}")
    return width
