"""Tests whole sizes of functions: sums against llvm-size, parts of small objects with known parts, damaged objects."""

from __future__ import annotations

import pickle
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.compiler.objects.elf import Elf, ElfError
from components.core.compiler.objects.function_sizes import FunctionSizes, read_function_sizes
from components.core.formats.corpus import Corpus

CLANG, LLVM_SIZE = "clang++-19", "llvm-size-19"
SOURCE = """
extern "C" int work(int) noexcept(false);
extern "C" int calm(int) noexcept;
struct Thing { Thing(int); ~Thing(); int value; };
Thing::Thing(int x) : value(work(x)) {}
Thing::~Thing() { calm(value); }
template <class T> __attribute__((noinline)) T shared(T x) { Thing thing(x); return work(x) * 3; }
extern "C" {
int leaf(int x) noexcept { return x * 3 + 1; }
int stops(int x) noexcept { return work(x) + shared(x); }
int catches(int x) { try { Thing thing(x); return work(x + 1); } catch (int &error) { return error; } }
#define CASES(a) switch (x) { case 0: return work(a); case 1: return calm(7) + a; case 2: return work(x * a); \\
  case 3: return calm(a) * 5; case 4: return calm(x) ^ a; case 5: return work(2) - calm(a); default: return 0; }
int jumps(int x) { CASES(11) }
int jumps_too(int x) { CASES(17) }
int looks_up(int x) {
  switch (x) { case 0: return 45; case 1: return 99; case 2: return 1000; case 3: return 4; case 4: return 78;
    case 5: return 123456; case 6: return 12; case 7: return 1; case 8: return 7777; default: return 0; }
}
int table_of_two(int x) { static int (*const table[])(int) = {leaf, looks_up}; return table[x & 1](x); }
const char *text(int x) { return x ? "a text of its own" : "another text"; }
void never() { __builtin_unreachable(); }
int last(int x) { return calm(x) + 3; }
}
"""
FLAGS = {
    "oz": ["-Oz"],
    "o2": ["-O2"],
    "sections": ["-O2", "-ffunction-sections", "-fdata-sections"],
    "nopic": ["-O2", "-fno-pic"],
    "plain": ["-O1", "-fno-asynchronous-unwind-tables", "-fno-exceptions", "-DPLAIN"],
    "debug": ["-O0", "-g"],
    "i386": ["-O2", "-m32", "-fPIC"],
    "i386_nopic": ["-O2", "-m32", "-fno-pic"],
    "aarch64": ["-O2", "--target=aarch64-linux-gnu"],
    "aarch64_be": ["-O2", "--target=aarch64_be-linux-gnu"],
    "riscv64": ["-O2", "--target=riscv64-linux-gnu"],
    "riscv32": ["-Oz", "--target=riscv32-unknown-elf"],
    "arm": ["-O2", "--target=armv7-linux-gnueabihf"],
    "thumb": ["-Oz", "--target=thumbv7em-none-eabi", "-ffunction-sections", "-fexceptions"],
    "armeb": ["-O2", "--target=armebv7-linux-gnueabihf"],
}
ASSEMBLY = """
.text
.globl sized, unsized, outer, inner, alias
.type sized,@function
sized: nop; nop; nop; ret
.size sized, .-sized
.type unsized,@function
unsized: nop; ret
.p2align 4
.type outer,@function
outer: nop; nop
.type inner,@function
inner: nop
.size inner, .-inner
nop; ret
.size outer, .-outer
.type constant,@function
.set constant, 0x1234
.type .Lnothing,@function
.section .text.empty,"ax",@progbits
.type empty,@function
empty:
"""


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sizes")
    plain = SOURCE.replace("try", "if (true)").replace("catch (int &error)", "").replace("{ return error; }", "")
    (folder / "main.cc").write_text(SOURCE)
    (folder / "plain.cc").write_text(plain)
    (folder / "assembly.s").write_text(ASSEMBLY)
    (folder / "data.c").write_text("const int table[] = {1, 2, 3};\n")
    paths = {}
    for name, flags in FLAGS.items():
        source = "plain.cc" if name == "plain" else "main.cc"
        paths[name] = folder / f"{name}.o"
        subprocess.run([CLANG, *flags, "-c", source, "-o", paths[name]], cwd=folder, check=True)
    for source in ("assembly.s", "data.c"):
        name = source.split(".")[0]
        paths[name] = folder / f"{name}.o"
        subprocess.run(["clang-19", "-c", source, "-o", paths[name]], cwd=folder, check=True)
    return paths


@pytest.fixture(scope="module")
def sizes(objects: dict[str, Path]) -> dict[str, FunctionSizes]:
    return {name: read_function_sizes(Elf(path.read_bytes())) for name, path in objects.items()}


ALL = [*FLAGS, "assembly", "data"]


def size_parts(sizes: FunctionSizes, name: str) -> tuple[int, int, int, int]:
    """Return the bytes of instructions, unwind, exceptions and jump tables of the function called `name`."""
    entry = sizes.entry[sizes.names.index(name)]
    columns = (sizes.instructions, sizes.unwind, sizes.exceptions, sizes.jump_tables)
    return tuple(int(column[entry]) for column in columns)  # type: ignore[return-value]


def is_complete(sizes: FunctionSizes) -> bool:
    """Return whether the parts sum to the text size."""
    by_part = int(sizes.whole.sum()) + sum(sizes.remainder.values())
    return by_part == sizes.text_size_bytes == sum(sizes.sections.values()) and min(sizes.remainder.values()) > 0


@pytest.mark.parametrize("name", ALL)
def test_functions_and_remainder_sum_to_llvm_size(
    objects: dict[str, Path], sizes: dict[str, FunctionSizes], name: str
) -> None:
    printed = subprocess.run([LLVM_SIZE, objects[name]], capture_output=True, text=True, check=True).stdout
    assert sizes[name].text_size_bytes == int(printed.splitlines()[1].split()[0]) > 0
    if name != "data":
        assert is_complete(sizes[name])
    reference = Elf(objects[name].read_bytes()).section_sizes(allocated_only=True)
    for kind, of_arm in {".eh_frame": ".ARM.exidx", ".gcc_except_table": ".ARM.extab"}.items():
        expected = sum(size for key, size in reference.items() if key.startswith((kind, of_arm)))
        assert sizes[name].sections[kind] == expected


def test_function_sizes_of_corpora_are_complete(tiny_corpus: Corpus, pressed_corpus: Corpus, clang: Path) -> None:
    for module in [*tiny_corpus, *pressed_corpus]:
        (sample,) = Compiler(clang, "inlining")(Request(module, Advisor("default"), want_functions=True)).samples
        assert sample.function_sizes is not None
        assert sample.text_size_bytes == sample.function_sizes.text_size_bytes > 0
        assert is_complete(sample.function_sizes)


@pytest.mark.parametrize(
    "name", ["oz", "o2", "sections", "nopic", "debug", "i386", "i386_nopic", "aarch64", "aarch64_be", "riscv64"]
)
def test_every_fde_and_lsda_belongs_to_a_function(sizes: dict[str, FunctionSizes], name: str) -> None:
    functions = sizes[name]
    empty = functions.instructions == 0
    # On RISC-V the code size in an FDE is in relocations: an empty function's FDE is attributed to its neighbour.
    assert (functions.unwind[~empty] > 0).all() and (name.startswith("riscv") or functions.unwind[empty].all())
    with_tables = {n for n, entry in zip(functions.names, functions.entry, strict=True) if functions.exceptions[entry]}
    assert {"stops", "catches", "_Z6sharedIiET_S0_"} <= with_tables and "leaf" not in with_tables
    assert int(functions.exceptions.sum()) == functions.sections[".gcc_except_table"]
    assert set(functions.remainder) >= {".eh_frame"}  # only the CIEs
    cies = functions.sections[".eh_frame"] - int(functions.unwind.sum())
    assert functions.remainder[".eh_frame"] == cies < 70


@pytest.mark.parametrize("name", ["arm", "thumb", "armeb"])
def test_arms_index_and_exception_tables_are_attributed(sizes: dict[str, FunctionSizes], name: str) -> None:
    functions = sizes[name]
    has_code = functions.instructions > 0
    parts = {n: size_parts(functions, n) for n in ("leaf", "stops", "catches")}
    assert all(unwind % 8 == 0 for _, unwind, _, _ in parts.values()) and parts["catches"][1] == 8
    assert parts["stops"][2] > 0 and parts["catches"][2] > 0 and parts["leaf"][2] == 0
    assert int(functions.unwind.sum()) == functions.sections[".eh_frame"]
    assert int(functions.exceptions.sum()) == functions.sections[".gcc_except_table"]
    assert has_code.sum() > 8


def test_without_unwind_tables_only_instructions_count(sizes: dict[str, FunctionSizes]) -> None:
    assert not sizes["plain"].unwind.any() and not sizes["plain"].exceptions.any()
    assert size_parts(sizes["plain"], "leaf")[0] > 0


def test_aliases_share_an_entry(sizes: dict[str, FunctionSizes]) -> None:
    functions = sizes["oz"]
    first, second = "_ZN5ThingC1Ei", "_ZN5ThingC2Ei"
    assert functions.entry[functions.names.index(first)] == functions.entry[functions.names.index(second)]
    by_name = functions.by_name()
    assert by_name[first] == by_name[second] > 30
    assert len(functions.names) > len(functions.whole)


@pytest.mark.parametrize("name", ["o2", "sections", "nopic", "i386", "i386_nopic", "riscv64"])
def test_jump_tables_are_attributed_to_their_functions(sizes: dict[str, FunctionSizes], name: str) -> None:
    entry_bytes = 8 if name == "nopic" else 4
    tables = {n: size_parts(sizes[name], n)[3] for n in ("jumps", "jumps_too", "leaf", "looks_up", "table_of_two")}
    assert tables["jumps"] == tables["jumps_too"] == 6 * entry_bytes
    # A table of function pointers is data, wherever they point.
    assert tables["leaf"] == tables["table_of_two"] == 0
    # A lookup table can be attributed only if it has a separate section.
    assert tables["looks_up"] == (36 if name == "sections" else 0)


def test_table_referenced_by_two_functions_is_in_the_remainder(tmp_path: Path) -> None:
    text = """
.section .rodata.first,"a",@progbits
.Ltable: .long 1, 2, 3
.section .rodata.second,"a",@progbits
.Lother: .long 1, 2
"""
    for name, tables in (("first", [".Ltable"]), ("second", [".Ltable", ".Lother"])):
        loads = "".join(f"leaq {table}(%rip), %rax\n" for table in tables)
        text += f'.section .text.{name},"ax",@progbits\n.type {name},@function\n'
        text += f"{name}: {loads} ret\n.size {name}, .-{name}\n"
    (tmp_path / "t.s").write_text(text)
    subprocess.run(["clang-19", "-c", "t.s"], cwd=tmp_path, check=True)
    sizes = read_function_sizes(Elf((tmp_path / "t.o").read_bytes()))
    assert sizes.by_name() == {"first": 8, "second": 15 + 8} and sizes.remainder == {".rodata.first": 12}


def test_empty_function_has_its_own_fde(sizes: dict[str, FunctionSizes]) -> None:
    # `never` is empty and starts at `last` or at the end of the section.
    instructions, unwind, _, _ = size_parts(sizes["oz"], "never")
    assert instructions == 0 and unwind > 0
    assert size_parts(sizes["oz"], "last")[0] > 0


def test_sizes_of_nested_and_unsized_assembly_functions(sizes: dict[str, FunctionSizes]) -> None:
    by_name = sizes["assembly"].by_name()
    # `outer` ends where `inner` starts, so that no byte counts twice.
    assert by_name == {"sized": 4, "unsized": 0, "outer": 2, "inner": 1, "constant": 0, "empty": 0}
    assert sizes["assembly"].remainder == {".text": 16 + 5 - 4 - 3}


def test_object_without_functions(sizes: dict[str, FunctionSizes]) -> None:
    assert sizes["data"].names == [] and sizes["data"].whole.tolist() == [] and sizes["data"].by_name() == {}
    assert sizes["data"].remainder == {".rodata": 12}


def test_addresses_of_code_outside_of_functions_are_in_the_remainder(tmp_path: Path) -> None:
    code = "start: leaq table(%rip), %rax\nnext: ret\n"
    (tmp_path / "t.s").write_text(f"{code}.section .rodata\ntable: .long start-table, next-table\n")
    subprocess.run(["clang-19", "-c", "t.s"], cwd=tmp_path, check=True)
    assert read_function_sizes(Elf((tmp_path / "t.o").read_bytes())).remainder == {".text": 8, ".rodata": 8}


def test_local_functions_with_the_same_name_are_summed(tmp_path: Path) -> None:
    for name in ("a", "b"):
        body = f"static int __attribute__((noinline)) helper(int x) {{ return x + {ord(name)}; }}"
        (tmp_path / f"{name}.c").write_text(f"{body} int {name}(int x) {{ return helper(x) + 1; }}\n")
        subprocess.run(["clang-19", "-O1", "-c", f"{name}.c"], cwd=tmp_path, check=True)
    subprocess.run(["ld.lld-19", "-r", "a.o", "b.o", "-o", "both.o"], cwd=tmp_path, check=True)
    apart = [read_function_sizes(Elf((tmp_path / f"{name}.o").read_bytes())).by_name() for name in ("a", "b")]
    both = read_function_sizes(Elf((tmp_path / "both.o").read_bytes()))
    assert both.names.count("helper") == 2
    assert both.by_name()["helper"] == sum(sizes["helper"] for sizes in apart)


def test_functions_that_a_linker_merges_are_weak(sizes: dict[str, FunctionSizes]) -> None:
    functions = sizes["oz"]
    weak = [name for name, weak in zip(functions.names, functions.weak, strict=True) if weak]
    assert weak == ["_Z6sharedIiET_S0_", "__clang_call_terminate"]


def test_pickled_sizes_do_not_contain_the_object(objects: dict[str, Path], sizes: dict[str, FunctionSizes]) -> None:
    pickled = pickle.dumps(sizes["o2"])
    assert pickle.loads(pickled).by_name() == sizes["o2"].by_name()
    assert len(pickled) < objects["o2"].stat().st_size


@pytest.mark.parametrize("name", ["o2", "sections"])
def test_implicit_addends_give_the_same_sizes(
    objects: dict[str, Path], sizes: dict[str, FunctionSizes], name: str
) -> None:
    implicit = read_function_sizes(Elf(with_implicit_addends(objects[name].read_bytes())))
    assert implicit.by_name() == sizes[name].by_name() and implicit.remainder == sizes[name].remainder


def with_implicit_addends(content: bytes) -> bytes:
    """Convert the SHT_RELA sections of an x86-64 object to SHT_REL, with addends in the words that they modify."""
    result = bytearray(content)
    begin = int.from_bytes(content[40:48], "little")
    headers = np.frombuffer(result, "<u8", offset=begin).reshape(-1, 8)
    narrow = np.frombuffer(result, "<u4", offset=begin).reshape(-1, 16)
    for row in np.flatnonzero(narrow[:, 1] == 4):
        offset, size, changed = int(headers[row, 3]), int(headers[row, 4]), int(headers[narrow[row, 11], 3])
        entries = np.frombuffer(content, "<i8", size // 8, offset).reshape(-1, 3)
        for position, info, addend in entries.tolist():
            width = 8 if info & 0xFFFFFFFF in (1, 24) else 4
            at = changed + position
            result[at : at + width] = addend.to_bytes(width, "little", signed=True)
        result[offset : offset + len(entries) * 16] = entries[:, :2].tobytes()
        narrow[row, 1], headers[row, 4], headers[row, 7] = 9, len(entries) * 16, 16
    return bytes(result)


@pytest.mark.parametrize(
    ("flags", "message"),
    [(["-s"], "no symbol table"), ([], "is linked"), (["--target=powerpc64le-linux-gnu"], "machine 21")],
)
def test_unsupported_file_is_refused(flags: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int main(void) { return 3; }\n")
    output = tmp_path / "a.o"
    if message == "is linked":
        subprocess.run(["clang-19", "a.c", "-o", output], cwd=tmp_path, check=True)
    else:
        target = [flag for flag in flags if flag.startswith("--target")]
        subprocess.run(["clang-19", *target, "-c", "a.c", "-o", output], cwd=tmp_path, check=True)
    if flags == ["-s"]:
        subprocess.run(["llvm-objcopy-19", "--strip-all", output], check=True)
    with pytest.raises(ElfError, match=message):
        read_function_sizes(Elf(output.read_bytes()))


def test_damaged_eh_frame_is_an_error(objects: dict[str, Path]) -> None:
    content = objects["oz"].read_bytes()
    begin = content.index(bytes(Elf(content).section(".eh_frame") or b""))
    for position, value in ((0, 0xFF), (2, 1), (8, 9), (9, 0x71)):  # lengths, version and augmentation of the first CIE
        damaged = bytearray(content)
        damaged[begin + position] = value
        with pytest.raises(ElfError, match="eh_frame"):
            read_function_sizes(Elf(bytes(damaged)))


@settings(max_examples=400, deadline=None)
@given(name=st.sampled_from(["oz", "sections", "riscv64", "implicit"]), data=st.data())
def test_damage_raises_elf_error_or_gives_complete_sizes(
    objects: dict[str, Path], name: str, data: st.DataObject
) -> None:
    content = bytearray(
        with_implicit_addends(objects["o2"].read_bytes()) if name == "implicit" else objects[name].read_bytes()
    )
    headers = int.from_bytes(content[40:48], "little")
    # Most bytes are names: also damage the header and the section headers.
    offsets = st.one_of(st.integers(0, 63), st.integers(headers, len(content) - 1), st.integers(0, len(content) - 1))
    for offset, value in data.draw(st.lists(st.tuples(offsets, st.integers(0, 255)), min_size=1, max_size=8)):
        content[offset] = value
    try:
        functions = read_function_sizes(Elf(bytes(content)))
    except ElfError as error:
        assert error.problem
        return
    assert int(functions.whole.sum()) + sum(functions.remainder.values()) == functions.text_size_bytes
    assert sum(functions.sections.values()) == functions.text_size_bytes
    assert functions.whole.min(initial=0) >= 0 and min(functions.remainder.values(), default=1) > 0
    assert all(size >= 0 for size in functions.by_name().values())
