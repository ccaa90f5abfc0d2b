"""Tests the ELF reader against LLVM's tools and pyelftools on real objects, and on damaged ones."""

from __future__ import annotations

import pickle
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile
from hypothesis import given, settings
from hypothesis import strategies as st

from components.core.compiler.objects.elf import ET_DYN, ET_REL, STB_WEAK, STT_FUNC, TYPE_BYTES, Elf, ElfError, elf_type

CLANG, LLVM_SIZE = "clang++-19", "llvm-size-19"
SOURCE = """
#include <map>
#include <string>
#include <vector>
static const char *const kNames[] = {"one", "two", "three"};
int counter = 7;
int zeros[100];
__thread int mine = 3;
static int helper(int a) { return a * 3 + zeros[a % 100]; }
int twice(int a) __attribute__((alias("once_impl")));
extern "C" int once_impl(int a) { return helper(a) + counter; }
namespace { struct Thing { virtual ~Thing(); virtual int size() const { return mine; } }; Thing::~Thing() {} }
int main(int argc, char **argv) {
  std::map<std::string, int> seen;
  for (std::string word : std::vector<std::string>(argv, argv + argc)) seen[word] += helper(argc);
  Thing thing;
  return int(seen.size()) + thing.size() + kNames[argc % 3][0];
}
"""
VARIANTS = {
    "oz": ["-Oz"],
    "debug": ["-O2", "-g", "-ffunction-sections", "-fdata-sections"],
    "embedded": ["-Oz", "-Xclang", "-fembed-bitcode=all"],
    "pic": ["-Oz", "-fPIC", "-fno-exceptions", "-fno-asynchronous-unwind-tables"],
    "aarch64": ["-Oz", "--target=aarch64-linux-gnu"],
    "thumb": ["-Oz", "--target=thumbv7em-none-eabi"],
    "riscv32": ["-Oz", "--target=riscv32-unknown-elf"],
    "powerpc": ["-Oz", "--target=powerpc-linux-gnu"],
    "s390x": ["-Oz", "--target=s390x-linux-gnu"],
}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("elf")
    (folder / "main.cc").write_text(SOURCE)
    (folder / "small.cc").write_text("int table[3]; int f(int a) { return a + table[a]; }\n")
    paths = {}
    for name, flags in VARIANTS.items():
        paths[name] = folder / f"{name}.o"
        source = "small.cc" if any(flag.startswith("--target") for flag in flags) else "main.cc"
        subprocess.run([CLANG, *flags, "-c", source, "-o", paths[name]], cwd=folder, check=True)
    paths["program"] = folder / "program"
    subprocess.run([CLANG, paths["oz"], "-o", paths["program"]], check=True)
    paths["stripped"] = folder / "stripped"
    subprocess.run([CLANG, paths["oz"], "-s", "-o", paths["stripped"]], check=True)
    many = "".join(f"int f{i}(void) {{ return {i}; }}\n" for i in range(200))
    (folder / "many.c").write_text(many)
    paths["many"] = folder / "many.o"
    subprocess.run(["clang-19", "-ffunction-sections", "-c", "many.c", "-o", paths["many"]], cwd=folder, check=True)
    return paths


ALL = [*VARIANTS, "program", "stripped", "many"]


@pytest.mark.parametrize("name", ALL)
def test_text_size_matches_llvm_size(objects: dict[str, Path], name: str) -> None:
    if shutil.which(LLVM_SIZE) is None:
        pytest.skip(f"{LLVM_SIZE} is not installed (package llvm-19)")
    output = subprocess.run([LLVM_SIZE, objects[name]], capture_output=True, text=True, check=True).stdout
    expected = int(output.splitlines()[1].split()[0])
    assert Elf(objects[name].read_bytes()).text_size() == expected > 0


@pytest.mark.parametrize("name", ALL)
def test_sections_and_symbols_match_pyelftools(objects: dict[str, Path], name: str) -> None:
    elf = Elf(objects[name].read_bytes())
    sizes: dict[str, int] = {}
    allocated: dict[str, int] = {}
    symbols: list[tuple[object, ...]] = []
    with open(objects[name], "rb") as file:
        reference = ELFFile(file)
        for section in reference.iter_sections():
            if section.name:
                sizes[section.name] = sizes.get(section.name, 0) + section["sh_size"]
                if section["sh_flags"] & 2:
                    allocated[section.name] = allocated.get(section.name, 0) + section["sh_size"]
        table = reference.get_section_by_name(".symtab")
        for symbol in table.iter_symbols() if table else ():
            section_index = {"SHN_UNDEF": 0, "SHN_ABS": -1, "SHN_COMMON": -1}.get(
                symbol["st_shndx"], symbol["st_shndx"]
            )
            is_function = symbol["st_info"]["type"] == "STT_FUNC"
            is_weak = symbol["st_info"]["bind"] == "STB_WEAK"
            name_offset = symbol.entry["st_name"]
            size = symbol["st_size"]
            symbols.append((name_offset, is_function, is_weak, section_index, symbol["st_value"], size))
        assert elf.section_sizes() == sizes
        assert elf.section_sizes(allocated_only=True) == allocated
        if table:
            symbol_table = elf.symbols()
            kinds = (symbol_table.type == STT_FUNC, symbol_table.binding == STB_WEAK)
            columns = (symbol_table.name, *kinds, symbol_table.section, symbol_table.value, symbol_table.size)
            assert list(zip(*(column.tolist() for column in columns), strict=True)) == symbols
            named = [
                i for i in range(len(symbol_table)) if symbol_table.name[i]
            ]  # pyelftools gives unnamed ones the name of their section
            assert elf.symbol_names(symbol_table.name[named]) == [table.get_symbol(i).name for i in named]
        else:
            with pytest.raises(ElfError, match="symbol table"):
                elf.symbols()
        for section_name in (".text", ".llvmbc", ".symtab", ".strtab"):
            expected = reference.get_section_by_name(section_name)
            contents = elf.section(section_name)
            assert (None if contents is None else bytes(contents)) == (None if expected is None else expected.data())
    assert bool(symbols) == (name != "stripped")
    assert elf.relocatable == (name not in ("program", "stripped"))
    machines = {"aarch64": 183, "thumb": 40, "riscv32": 243, "powerpc": 20, "s390x": 22}
    assert elf.machine == machines.get(name, 62)
    assert elf.address_bytes == (4 if name in ("thumb", "riscv32", "powerpc") else 8)
    assert elf.byte_order == ("big" if name in ("powerpc", "s390x") else "little")


@pytest.mark.parametrize("name", ALL)
def test_type_is_known_from_the_first_bytes(objects: dict[str, Path], name: str) -> None:
    start = objects[name].read_bytes()[:TYPE_BYTES]
    with open(objects[name], "rb") as file:
        kind = {"ET_REL": ET_REL, "ET_DYN": ET_DYN}[ELFFile(file)["e_type"]]
    assert elf_type(start) == elf_type(memoryview(start)) == kind
    assert [elf_type(start[:length]) for length in range(TYPE_BYTES)] == [0] * TYPE_BYTES


@given(content=st.binary())
def test_other_files_have_no_type(content: bytes) -> None:
    assert content[:4] == b"\x7fELF" or elf_type(content) == elf_type(memoryview(content)) == 0


@pytest.mark.parametrize("name", ["oz", "debug", "aarch64", "many", "riscv32", "powerpc", "s390x"])
def test_relocations_match_pyelftools(objects: dict[str, Path], name: str) -> None:
    elf = Elf(objects[name].read_bytes())
    expected = []
    with open(objects[name], "rb") as file:
        for table in ELFFile(file).iter_sections("SHT_RELA"):
            for entry in table.iter_relocations():
                row = (entry["r_offset"], entry["r_info_type"], entry["r_info_sym"], entry["r_addend"])
                expected.append((table["sh_info"], *row))
    sizes, _ = elf.text_sections()
    relocations = elf.relocations(np.ones(len(sizes), bool), len(elf.symbols()))
    columns = (relocations.section, relocations.offset, relocations.type, relocations.symbol, relocations.addend)
    assert sorted(zip(*(column.tolist() for column in columns), strict=True)) == sorted(expected) != []
    only = int(relocations.section[0])
    marked = np.arange(len(sizes)) == only
    assert set(elf.relocations(marked, len(elf.symbols())).section.tolist()) == {only}


def test_text_sections_sum_to_the_text_size(objects: dict[str, Path]) -> None:
    for name in ALL:
        elf = Elf(objects[name].read_bytes())
        size, code = elf.text_sections()
        assert int(size[size >= 0].sum()) == elf.text_size()
        assert code[size < 0].sum() == 0 < code.sum()


def test_extended_section_numbering(tmp_path: Path) -> None:
    """The object has more sections than fit into the 16 bits of a symbol's section index."""
    count = 65_400
    body = '.section .text,"ax",@progbits,unique,{0}\n.type f{0},@function\nf{0}: ret\n.size f{0}, 1\n'
    (tmp_path / "many.s").write_text("".join(body.format(i) for i in range(count)))
    subprocess.run(["clang-19", "-c", "many.s"], cwd=tmp_path, check=True)
    elf = Elf((tmp_path / "many.o").read_bytes())
    symbols = elf.symbols()
    functions = symbols.type == STT_FUNC
    _, code = elf.text_sections()
    assert len(set(symbols.section[functions].tolist())) == functions.sum() == count
    assert code[symbols.section[functions]].all() and elf.text_size() == count


def test_suffix_of_a_section_name_does_not_match(objects: dict[str, Path]) -> None:
    elf = Elf(objects["oz"].read_bytes())
    assert elf.section("text") is None and elf.section(".nothing") is None
    assert bytes(elf.section(".text") or b"")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an ELF"),
        (b"BC\xc0\xde rest", "bitcode"),
        (b"\x7fELF\x02\x01", "truncated"),
        (b"\x7fELF\x01\x02" + bytes(90), "no section headers"),
        (b"\x7fELF\x01\x01" + bytes(40), "its header alone has 52"),
        (b"\x7fELF\x03\x01" + bytes(90), "neither its width nor its byte order"),
        (b"\x7fELF\x02\x00" + bytes(90), "neither its width nor its byte order"),
        (b"\x7fELF\x02\x01" + bytes(90), "no section headers"),
    ],
)
def test_error_names_why_data_is_not_an_elf_file(content: bytes, message: str) -> None:
    with pytest.raises(ElfError, match=message):
        Elf(content)


def test_reading_nobits_section_raises_picklable_error(objects: dict[str, Path]) -> None:
    with pytest.raises(ElfError, match="NOBITS") as caught:
        Elf(objects["oz"].read_bytes()).section(".bss")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.999])
def test_truncated_file_is_an_error(objects: dict[str, Path], keep: float) -> None:
    content = objects["many"].read_bytes()
    with pytest.raises(ElfError):
        Elf(content[: int(len(content) * keep)]).symbols()


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damage_raises_only_elf_error(objects: dict[str, Path], data: st.DataObject) -> None:
    content = bytearray(objects["pic"].read_bytes())
    # Most bytes are code, which the reader never reads: also damage the header and the section headers.
    headers = int.from_bytes(content[40:48], "little")
    offsets = st.one_of(st.integers(0, 63), st.integers(headers, len(content) - 1), st.integers(0, len(content) - 1))
    for offset, value in data.draw(st.lists(st.tuples(offsets, st.integers(0, 255)), min_size=1, max_size=8)):
        content[offset] = value
    try:
        elf = Elf(bytes(content))
        assert elf.text_size() >= 0
        elf.section(".text")
        assert all(size >= 0 for size in elf.section_sizes().values())
        symbols = elf.symbols()
        elf.symbol_names(symbols.name)
        sizes, _ = elf.text_sections()
        elf.relocations(np.ones(len(sizes), bool), len(symbols))
    except ElfError as error:
        assert error.problem
