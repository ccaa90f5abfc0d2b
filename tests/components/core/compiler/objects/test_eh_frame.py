"""Tests the .eh_frame reader against pyelftools on real objects, and on damaged sections."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st

from components.core.compiler.objects.eh_frame import read_frame_descriptions
from components.core.compiler.objects.elf import Elf, ElfError

SOURCE = """
int work(int);
struct Thing { ~Thing(); };
int leaf(int x) { return x + 1; }
int calls(int x) { return work(x) * 2; }
int cleans(int x) { Thing thing; return work(x); }
int catches(int x) { try { return work(x); } catch (...) { return 1; } }
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("eh_frame")
    (folder / "a.cc").write_text(SOURCE)
    subprocess.run(["clang++-19", "-Oz", "-c", "a.cc"], cwd=folder, check=True)
    return folder / "a.o"


@pytest.fixture(scope="module")
def section(path: Path) -> bytes:
    return bytes(Elf(path.read_bytes()).section(".eh_frame") or b"")


def test_fdes_match_pyelftools(path: Path, section: bytes) -> None:
    fdes = read_frame_descriptions(memoryview(section))
    with open(path, "rb") as file:
        entries = [e for e in ELFFile(file).get_dwarf_info().EH_CFI_entries() if isinstance(e, FDE)]
        assert fdes.size.tolist() == [entry.header.length + 4 for entry in entries]
        assert fdes.address.tolist() == [entry.offset + 8 for entry in entries]
        assert fdes.code_size.tolist() == [entry.header.address_range for entry in entries]
        assert fdes.code_size_at.tolist() == [entry.offset + 12 for entry in entries]
        has_lsda = ["L" in entry.cie.header.augmentation.decode() for entry in entries]
        assert (fdes.lsda >= 0).tolist() == has_lsda and 0 < sum(has_lsda) < len(entries)
        assert fdes.lsda[has_lsda].tolist() == [e.offset + 17 for e in entries if e.lsda_pointer is not None]


def record(*words: bytes) -> bytes:
    return struct.pack("<I", sum(map(len, words))) + b"".join(words)


CIE = record(bytes(4), b"\x01zR\0\x01\x78\x10\x01\x1b", bytes(3))
FDE_BYTES = record(struct.pack("<I", len(CIE) + 4), bytes(4), struct.pack("<I", 77), bytes(4))


def test_terminators_and_records_without_padding_are_read() -> None:
    fdes = read_frame_descriptions(memoryview(CIE + FDE_BYTES + bytes(4)))
    assert (fdes.size.tolist(), fdes.code_size.tolist(), fdes.lsda.tolist()) == ([20], [77], [-1])
    assert len(read_frame_descriptions(memoryview(bytes(4))).size) == 0
    assert len(read_frame_descriptions(memoryview(b"")).size) == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (CIE + FDE_BYTES[:-4], "ends at byte"),
        (FDE_BYTES, "without a CIE"),
        (CIE + FDE_BYTES.replace(struct.pack("<I", len(CIE) + 4), struct.pack("<I", 8)), "without a CIE"),
        (CIE + record(struct.pack("<I", len(CIE) + 4), bytes(4)), "FDE that is too short for its fields"),
        (record(bytes(4), b"\x01zR\0\x01\x78"), "CIE that is too short for its fields"),
        (record(b"\1"), "record of 1 bytes"),
        (CIE.replace(b"\x01zR", b"\x04zR"), "version 4"),
        (CIE.replace(b"zR", b"eh"), "augmentation 'eh'"),
        (CIE.replace(b"\x1b", b"\x19"), "encoding 0x19"),
    ],
)
def test_error_names_the_damage(content: bytes, message: str) -> None:
    with pytest.raises(ElfError, match=message):
        read_frame_descriptions(memoryview(content))


@given(data=st.data())
def test_damage_raises_only_elf_error(section: bytes, data: st.DataObject) -> None:
    content = bytearray(section)
    for offset, value in data.draw(
        st.lists(st.tuples(st.integers(0, len(section) - 1), st.integers(0, 255)), max_size=4)
    ):
        content[offset] = value
    try:
        fdes = read_frame_descriptions(memoryview(bytes(content)[: data.draw(st.integers(0, len(section)))]))
        assert int(fdes.size.sum()) <= len(section) and (fdes.lsda < len(section)).all()
    except ElfError as error:
        assert error.problem
