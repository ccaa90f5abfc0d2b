"""Reads .eh_frame: the size of each function's unwind information, and which code and which LSDA it is about.

The format is that of the Linux Standard Base, "Exception Frames". A section is a sequence of records, each a length
(4 bytes) and as many bytes: common information entries (CIE), which functions share, and one frame description entry
(FDE) for each function. In an object the addresses in an FDE are relocations, so the offsets of its fields are read.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from components.compiler.elf import ElfError

_LENGTH = struct.Struct("<I")
_LENGTH_BYTES = 4
_ID_BYTES = 4
_OMITTED = 0xFF
_POINTER_BYTES = {0x0: 8, 0x2: 2, 0x3: 4, 0x4: 8, 0xA: 2, 0xB: 4, 0xC: 8}
"""Width of a pointer by the lower half of its encoding (DW_EH_PE_*)."""


@dataclass(frozen=True)
class FrameDescriptions:
    """The FDEs [N] of one .eh_frame section; offsets are of the section.

    Attributes:
        size: int64 bytes, the length field and the padding at the end included.
        address: int64, offset of the field with the first address of its code.
        code_size: int64, bytes of its code, if no relocation fills them in.
        code_size_at: int64, offset of the field with them.
        lsda: int64, offset of the field with the address of its exception table; -1 if it has none.
    """

    size: NDArray[np.int64]
    address: NDArray[np.int64]
    code_size: NDArray[np.int64]
    code_size_at: NDArray[np.int64]
    lsda: NDArray[np.int64]


@dataclass(frozen=True)
class _CommonInformation:
    """What a CIE says about its FDEs: bytes of an address and of the LSDA's address; 0 if they have no LSDA."""

    address_bytes: int = 8
    lsda_bytes: int = 0


def read_frame_descriptions(contents: memoryview) -> FrameDescriptions:
    """Return the FDEs of an .eh_frame section. ElfError if it is damaged."""
    starts, lengths = _records(contents)
    data = np.frombuffer(contents, np.uint8)
    start, length = np.array(starts, np.int64), np.array(lengths, np.int64)
    start, length = start[length > 0], length[length > 0]  # a length of 0 is a terminator
    if len(length) and length.min() < _ID_BYTES:
        raise ElfError(f".eh_frame has a record of {length.min()} bytes")
    # The second word is 0 in a CIE; in an FDE it is the distance from there back to its CIE.
    distance = _words(data, start + _LENGTH_BYTES, _ID_BYTES)
    is_cie = distance == 0
    cies, fde, size = start[is_cie], start[~is_cie], length[~is_cie] + _LENGTH_BYTES
    cie_ends = cies + length[is_cie] + _LENGTH_BYTES
    wanted = fde + _LENGTH_BYTES - distance[~is_cie]
    cie = np.searchsorted(cies, wanted)
    if len(fde) and (not len(cies) or (cies[np.minimum(cie, len(cies) - 1)] != wanted).any()):
        raise ElfError(".eh_frame has an FDE whose CIE is not there")
    ranges = zip(cies.tolist(), cie_ends.tolist(), strict=True)
    common = [_common_information(bytes(contents[begin:end])) for begin, end in ranges]
    address_bytes = np.array([c.address_bytes for c in common], np.int64)[cie]
    lsda_bytes = np.array([c.lsda_bytes for c in common], np.int64)[cie]
    address = fde + _LENGTH_BYTES + _ID_BYTES
    # Behind the address and the size of the code: the length of the augmentation data (1 byte), the LSDA's address.
    lsda = address + 2 * address_bytes + 1
    if (lsda - (lsda_bytes == 0) + lsda_bytes > fde + size).any():
        raise ElfError(".eh_frame has an FDE that ends before its fields do")
    code_size, code_size_at = np.zeros(len(fde), np.int64), address + address_bytes
    for width in set(address_bytes.tolist()):
        rows = address_bytes == width
        code_size[rows] = _words(data, code_size_at[rows], width)
    return FrameDescriptions(size, address, code_size, code_size_at, np.where(lsda_bytes > 0, lsda, -1))


def _records(contents: memoryview) -> tuple[list[int], list[int]]:
    """Offset of each record and its length, which does not count the length field."""
    starts, lengths, at, end = [], [], 0, len(contents)
    unpack = _LENGTH.unpack_from
    while at + _LENGTH_BYTES <= end:
        (length,) = unpack(contents, at)
        starts.append(at)
        lengths.append(length)
        at += length + _LENGTH_BYTES
    if at != end:
        raise ElfError(f".eh_frame has {end} bytes and a record that ends at byte {at}")
    return starts, lengths


def _words(data: NDArray[np.uint8], places: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """int64 [N]: the little-endian words of `width` bytes at `places`, which need not be aligned."""
    words = data[places[:, None] + np.arange(width)].view(f"<u{width}")[:, 0]
    return np.asarray(words.astype(np.int64))


def _common_information(record: bytes) -> _CommonInformation:
    """Parse a CIE; only what the places of an FDE's fields depend on."""
    try:
        version, at = record[8], 9
        if version not in (1, 3):
            raise ElfError(f".eh_frame has a CIE of version {version}")
        end = record.index(b"\0", at)
        augmentation, at = record[at:end].decode("latin-1"), end + 1
        if not augmentation:
            return _CommonInformation()
        if augmentation[0] != "z":
            raise ElfError(f".eh_frame has a CIE with the augmentation {augmentation!r}")
        at = _skip_leb128(record, _skip_leb128(record, at))  # code and data alignment factors
        at = at + 1 if version == 1 else _skip_leb128(record, at)  # return address register
        at = _skip_leb128(record, at)  # length of the augmentation data
        address_bytes, lsda_bytes = 8, 0
        for letter in augmentation[1:]:
            if letter == "R":
                address_bytes, at = _pointer_bytes(record[at]), at + 1
            elif letter == "L":
                lsda_bytes, at = 0 if record[at] == _OMITTED else _pointer_bytes(record[at]), at + 1
            elif letter == "P":
                at += 1 + _pointer_bytes(record[at])
            elif letter not in "SBG":
                raise ElfError(f".eh_frame has a CIE with the augmentation {augmentation!r}")
        return _CommonInformation(address_bytes, lsda_bytes)
    except (IndexError, ValueError):
        raise ElfError(".eh_frame has a CIE that ends before its fields do") from None


def _skip_leb128(record: bytes, at: int) -> int:
    """Offset behind the LEB128 number at `at`. IndexError if it does not end."""
    while record[at] & 0x80:
        at += 1
    return at + 1


def _pointer_bytes(encoding: int) -> int:
    """Width of a pointer with that encoding."""
    if encoding == _OMITTED or encoding & 0xF not in _POINTER_BYTES:
        raise ElfError(f".eh_frame has pointers with the encoding {encoding:#x}")
    return _POINTER_BYTES[encoding & 0xF]
