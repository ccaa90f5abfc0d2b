"""Readers of objects, linked files, archives and bitcode, on mutated files, and on files that repeat their own bytes.

MLGO_ATTACK_ROUNDS=100 python -m pytest -m attack tests/components/core/compiler/objects/test_hostile_objects.py -s
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from components.core.compiler.objects.archive import ArchiveError, read_members
from components.core.compiler.objects.elf import Elf, ElfError
from components.core.compiler.objects.object_file import measure_object
from components.core.formats.bitcode import BitcodeError, producer_major, read_layout, reader
from components.core.formats.bitcode_symbols import UNKNOWN, _blob, read_symbols
from components.core.projects.flags.section_sizes import measure
from components.core.projects.runpath import has_search_path, needed_libraries, relocate_runpath
from components.corpus.extraction.compiler_used import CompilerUsed
from components.evaluation.projects.function_changes import function_sizes
from components.platform.errors import UserError
from components.shrink.differences.linked_files import own_sections
from components.shrink.differences.order import moved_entries, moved_initializers
from tests.attack.mutations import limits, read_mutations

SOURCE = """\
struct Thing { Thing(); ~Thing(); int value; };
int leaf(int);
static int square(int a) { return a * a; }
template <class T> __attribute__((noinline)) T shared(T a, T b) { return a * b + leaf(a); }
int pick(int a) {
  switch (a) {
  case 0: return leaf(7);
  case 1: return leaf(93);
  case 2: return 1515 - leaf(a + 1);
  case 3: return leaf(2) * leaf(8);
  case 4: return 99;
  case 5: return a + leaf(1);
  }
  return a;
}
int uses(int a) { Thing thing; thing.value = a; return shared(a, 3) + square(thing.value); }
static Thing first;
"""
TARGETS = {
    "x86_64-linux-gnu": (),
    "x86_64-pc-linux-gnu": ("-ffunction-sections", "-fdata-sections"),
    "i686-linux-gnu": (),
    "aarch64-linux-gnu": (),
    "armv7-linux-gnueabihf": (),
    "riscv64-unknown-linux-gnu": (),
    "s390x-linux-gnu": (),
    "x86_64-pc-windows-msvc": (),
    "aarch64-pc-windows-msvc": (),
    "i686-w64-windows-gnu": (),
    "x86_64-apple-macosx11": (),
    "arm64-apple-macosx11": (),
}


def compile_source(folder: Path, *options: str, output: str = "m.o") -> Path:
    (folder / "m.cc").write_text(SOURCE)
    command = ["clang++-19", "-O2", "-fexceptions", *options, "m.cc", "-o", output]
    subprocess.run(command, cwd=folder, check=True)
    return folder / output


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    folder = tmp_path_factory.mktemp("objects")
    return [
        compile_source(folder, f"--target={target}", *options, "-c").read_bytes() for target, options in TARGETS.items()
    ]


def read_object(content: bytes) -> None:
    size, functions = measure_object(memoryview(content), want_functions=True, want_bodies=True)
    assert functions is not None and functions.text_size_bytes == size == sum(functions.sections.values())
    assert int(functions.whole.sum()) + sum(functions.remainder.values()) == size
    parts = (functions.instructions, functions.unwind, functions.exceptions, functions.jump_tables)
    assert all(part.min(initial=0) >= 0 for part in parts) and min(functions.remainder.values(), default=1) > 0
    if content[:4] == b"\x7fELF":
        CompilerUsed(Elf(content), []).restore(memoryview(b""))


@pytest.mark.attack
def test_mutated_object_is_an_error_or_has_complete_sizes(objects: list[bytes]) -> None:
    read_mutations(read_object, objects, 3000, (ElfError,))


@pytest.mark.attack
def test_mutated_linked_file_is_an_error_or_read(tmp_path: Path) -> None:
    options = ("-fPIC", "-shared", "-nostdlib", "-fuse-ld=lld", "-Wl,-rpath,/build/tree/lib", "-Wl,--build-id=none")
    library = compile_source(tmp_path, "--target=x86_64-linux-gnu", *options, output="lib.so").read_bytes()
    own, other = tmp_path / "own", tmp_path / "other"
    for directory in (own, other):
        directory.mkdir()
        (directory / "lib.so").write_bytes(library)
    path = other / "lib.so"

    def read_linked(content: bytes) -> None:
        path.write_bytes(content)
        for compare in (lambda: moved_initializers(own, other, gcc_lto=True), lambda: moved_entries(own, other)):
            assert all("lib.so" in sentence for sentence in compare())
        own_sections(path)
        measure(path)
        function_sizes(path)
        assert isinstance(needed_libraries(path), frozenset) and isinstance(has_search_path(path), bool)
        relocate_runpath(path, Path("/build/tree/lib.so"), Path("/build"))

    read_linked(library)
    assert b"$ORIGIN/lib\0" in path.read_bytes()
    read_mutations(read_linked, [library], 400, (UserError,))


@pytest.mark.attack
def test_mutated_archive_is_an_error_or_has_members(objects: list[bytes], tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    names = ["a.o", "a-name-of-more-than-fifteen-bytes.o", "x/a.o"]
    for name, content in zip(names, objects, strict=False):
        (tmp_path / name).write_bytes(content[:100])
    archives = []
    for how in ("--format=gnu", "--format=bsd", "--thin"):
        (tmp_path / "lib.a").unlink(missing_ok=True)
        subprocess.run(["llvm-ar-19", how, "rcS", "lib.a", *names], cwd=tmp_path, check=True)
        archives.append((tmp_path / "lib.a").read_bytes())

    def read_archive(content: bytes) -> None:
        members = read_members(memoryview(content), "/lib/lib.a")
        assert len({member.name for member in members}) == len(members)
        assert all("/" not in member.name and (member.path == "") == (member.content is not None) for member in members)

    read_mutations(read_archive, archives, 30_000, (ArchiveError,))


@pytest.mark.attack
def test_mutated_bitcode_is_an_error_or_has_symbols(tmp_path: Path) -> None:
    modules = []
    for name, option in (("m.o", "-O1"), ("d.o", "-g")):
        path = compile_source(tmp_path, "--target=x86_64-linux-gnu", "-emit-llvm", "-c", option, output=name)
        modules.append(path.read_bytes())
    assert all(read_symbols(module).strong for module in modules)

    def read_bitcode(content: bytes) -> None:
        symbols = read_symbols(content)
        for module in read_layout(reader(content), len(content)):
            assert producer_major(reader(content), module) >= 0
        if symbols == UNKNOWN:
            raise BitcodeError

    read_mutations(read_bitcode, modules, 8000, (BitcodeError,))


def elf(names: bytes, *sections: tuple[int, int, int, bytes | tuple[int, int]], machine: int = 62) -> bytes:
    """Return an object whose section 1 has the names of sections and symbols, 2 the symbols.

    Args:
        sections: offset of the name, type, flags, and content, or offset and size.
    """
    blob, rows = bytearray(64), [bytes(64)]
    for name, kind, flags, content in ((0, 3, 0, names), *sections):
        offset, size = content if isinstance(content, tuple) else (len(blob), len(content))
        blob += b"" if isinstance(content, tuple) else content
        link, info, entry = {2: (1, 0, 24), 4: (2, 3, 24)}.get(kind, (0, 0, 0))
        rows.append(struct.pack("<IIQQQQIIQQ", name, kind, flags, 0, offset, size, link, info, 1, entry))
    header = b"\x7fELF\2\1\1".ljust(16, b"\0"), 1, machine, 1, 0, 0, len(blob), 0, 64, 0, 0, 64, len(rows), 1
    blob[:64] = struct.pack("<16sHHIQQQIHHHHHH", *header)
    return bytes(blob) + b"".join(rows)


def coff(section: tuple[bytes, int, int, int], symbols: int, strings: bytes, sections: int = 4000) -> bytes:
    """Return an object with equal sections of a name, a size, an offset and flags."""
    name, size, offset, flags = section
    rows = struct.pack("<8s6I2HI", name, 0, 0, size, offset, 0, 0, 0, 0, flags) * sections
    table = [struct.pack("<4xIIhHBB", 4 + i, 0, 1 + i % sections, 0x20, 2, 0) for i in range(symbols)]
    header = struct.pack("<2H3I2H", 0x8664, sections, 0, 20 + len(rows), symbols, 0, 0)
    return header + rows + b"".join(table) + struct.pack("<I", 4 + len(strings)) + strings


def macho(sections: int) -> bytes:
    """Return an object with sections of unwind data that have the same bytes."""
    row = struct.pack("<16s16s2Q8I", b"__compact_unwind", b"__LD", 0, 100_000, 104, 0, 0, 0, 0, 0, 0, 0)
    command = struct.pack("<2I16s4Q4I", 0x19, 72 + 80 * sections, b"", 0, 0, 0, 0, 7, 7, sections, 0)
    header = struct.pack("<8I", 0xFEEDFACF, 0, 0, 1, 1, 0, 0, 0)
    return header + command + row * sections + bytes(100_000)


def symbols(count: int) -> bytes:
    return bytes(24) + b"".join(struct.pack("<IBBHQQ", 8 + i, 2, 0, 3, i, 1) for i in range(count))


LONG = b"\0.text\0" + b"a" * 400_000 + b"\0"
SHORT = b"\0.eh_frame\0.text\0" + b"a\0" * 5000
ADD = 8000
FILES: dict[str, tuple[Callable[[bytes], object], Callable[[], bytes], str]] = {
    "names of sections": (
        lambda content: Elf(content).section_sizes(),
        lambda: elf(LONG, *((8 + i, 1, 2, b"") for i in range(ADD))),
        "names of 3167",
    ),
    "names of symbols": (
        read_object,
        lambda: elf(LONG, (0, 2, 0, symbols(ADD)), (1, 1, 6, bytes(ADD))),
        "names of 3167",
    ),
    "text": (
        read_object,
        lambda: elf(SHORT, (0, 2, 0, symbols(9)), *[(11, 1, 6, (64, 10_000))] * ADD),
        "sections overlap",
    ),
    "relocations": (
        lambda content: CompilerUsed(Elf(content), []).restore(memoryview(b"")),
        lambda: elf(SHORT, (0, 2, 0, symbols(9)), (11, 1, 6, bytes(9)), *[(0, 4, 0, (64, 24 * 5000))] * ADD),
        "sections overlap",
    ),
    "unwind tables": (
        read_object,
        lambda: elf(SHORT, (0, 2, 0, symbols(0)), *[(1, 1, 2, bytes(4))] * ADD),
        "",
    ),
    "tables without bytes": (
        read_object,
        lambda: elf(SHORT, (0, 2, 0, symbols(0)), *[(1, 8, 2, (0, (1 << 48) - 1))] * ADD),
        "too much",
    ),
    "joined sections": (
        lambda content: Elf(content).joined_sections(".text"),
        lambda: elf(SHORT, *[(11, 1, 2, (64, 100_000))] * ADD),
        "sections overlap",
    ),
    "COFF symbols": (read_object, lambda: coff((b".text", 0, 0, 0x20), 20_000, b"a\0" * 20_000), ""),
    "COFF names": (read_object, lambda: coff((b".text", 0, 0, 0x20), ADD, b"a" * 400_000), "names of this object"),
    "COFF unwind tables": (
        read_object,
        lambda: coff((b".pdata", 200_000, 20, 0x40000040), 0, bytes(100_000)),
        "sections overlap",
    ),
    "COFF tables without bytes": (read_object, lambda: coff((b".pdata", 1 << 31, 0, 0x40000040), 0, b"", 9), ""),
    "Mach-O unwind tables": (read_object, lambda: macho(4000), "sections overlap"),
    "names of members": (
        lambda content: read_members(memoryview(content), "/lib/lib.a"),
        lambda: archive(b"//", *(f"/{i}".encode() for i in range(ADD)), content=b"a" * 400_000),
        "name of the member",
    ),
    "equal names of members": (
        lambda content: read_members(memoryview(content), "/lib/lib.a"),
        lambda: archive(*[b"a.o/"] * 30_000),
        "",
    ),
}


def archive(*names: bytes, content: bytes = b"") -> bytes:
    """Return an archive whose first member has the content, the others none."""
    fields = b"%-16s%-32s%-10d`\n"
    return b"!<arch>\n" + b"".join(
        fields % (name, b"", len(part)) + part
        for name, part in zip(names, [content, *[b""] * len(names)], strict=False)
    )


@pytest.mark.parametrize("name", FILES)
def test_file_that_repeats_its_bytes_takes_no_more_time_and_memory_than_others(name: str) -> None:
    """Without limits, each of these files of at most 3 MB takes minutes or GB."""
    read, make, message = FILES[name]
    content = make()
    assert len(content) < 3 << 20
    with limits(30) as start:
        start()
        if not message:
            read(content)
            return
        with pytest.raises((UserError, ArchiveError), match=message):
            read(content)


def test_unwind_data_beyond_its_section_is_refused(tmp_path: Path) -> None:
    content = bytearray(compile_source(tmp_path, "--target=aarch64-pc-windows-msvc", "-c").read_bytes())
    sections = struct.unpack_from("<H", content, 2)[0]
    header = next(at for at in range(20, 20 + 40 * sections, 40) if content[at : at + 6] == b".pdata")
    offset, relocations = struct.unpack_from("<2I", content, header + 20)
    (at,) = struct.unpack_from("<I", content, relocations + 10)  # of the first function's unwind data
    content[offset + at + 2] |= 0x80
    with pytest.raises(ElfError, match="outside of its section"):
        read_object(bytes(content))


def test_names_of_bitcode_share_few_bytes(tmp_path: Path) -> None:
    content = bytearray(compile_source(tmp_path, "--target=x86_64-linux-gnu", "-emit-llvm", "-c").read_bytes())
    assert "_Z4picki" in read_symbols(bytes(content)).strong
    (module,) = read_layout(reader(bytes(content)), len(content))
    block = next(block for block in module.blocks if block.id == 25)  # the symbol table of linkers
    begin = content.index(_blob(bytes(content), block))
    first, count = struct.unpack_from("<2I", content, begin + 28)
    for number in range(count):
        struct.pack_into("<2I", content, begin + first + 24 * number, 0, 1 << 20)
    assert read_symbols(bytes(content)) == UNKNOWN
