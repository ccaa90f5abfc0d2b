"""Mach-O and COFF objects, as clang's cross targets make them."""

from __future__ import annotations

import random
import re
import subprocess
from pathlib import Path

import pytest

from components.core.compiler.objects.elf import ElfError
from components.core.compiler.objects.function_sizes import FunctionSizes
from components.core.compiler.objects.object_file import measure_object, open_foreign

SOURCE = """\
extern "C" int printf(const char *, ...);
struct Thing { ~Thing(); int value; };
static int square(int a) { int s = 0; for (int i = 0; i < a; i++) s += i * a; return s; }
extern "C" int leaf(int x) { return square(x) + square(x + 1); }
template <class T> __attribute__((noinline)) T shared(T a, T b) { return a * b + leaf(a); }
int uses(int a) { Thing thing{a}; printf("%d", a); return shared(a, 3); }
"""
TARGETS = {
    "windows": ("x86_64-pc-windows-msvc", "?uses@@YAHH@Z", "??$shared@H@@YAHHH@Z"),
    "windows-arm": ("aarch64-pc-windows-msvc", "?uses@@YAHH@Z", "??$shared@H@@YAHHH@Z"),
    "mingw": ("x86_64-w64-windows-gnu", "_Z4usesi", "_Z6sharedIiET_S0_S0_"),
    "mingw-32": ("i686-w64-windows-gnu", "_Z4usesi", "_Z6sharedIiET_S0_S0_"),
    "macos": ("x86_64-apple-macosx11", "_Z4usesi", "_Z6sharedIiET_S0_S0_"),
    "macos-arm": ("arm64-apple-macosx11", "_Z4usesi", "_Z6sharedIiET_S0_S0_"),
}


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("objects")
    (folder / "m.cc").write_text(SOURCE)
    paths = {name: folder / f"{name}.o" for name in TARGETS}
    for name, (triple, *_names) in TARGETS.items():
        options = [f"--target={triple}", "-Oz", "-fexceptions", "-Xclang", "-fembed-bitcode=all"]
        subprocess.run(["clang-19", *options, "-c", "m.cc", "-o", paths[name]], cwd=folder, check=True)
    return paths


def measure(path: Path) -> FunctionSizes:
    size, functions = measure_object(memoryview(path.read_bytes()), want_functions=True)
    assert functions is not None and functions.text_size_bytes == size
    return functions


def part(functions: FunctionSizes, column: str, name: str) -> int:
    return int(getattr(functions, column)[functions.entry[functions.names.index(name)]])


@pytest.mark.parametrize("name", TARGETS)
def test_bytes_are_attributed_to_functions(objects: dict[str, Path], name: str) -> None:
    _triple, uses, shared = TARGETS[name]
    functions = measure(objects[name])
    assert {"leaf", uses, shared} <= set(functions.names) and len(functions.names) < 6
    assert int(functions.whole.sum()) + sum(functions.remainder.values()) == functions.text_size_bytes
    assert part(functions, "instructions", "leaf") > 20
    weak = dict(zip(functions.names, functions.weak.tolist(), strict=True))
    assert weak[shared] and not weak["leaf"] and not weak[uses]
    if name == "mingw-32":  # its unwind data is DWARF's
        assert functions.sections[".rodata"] > 0
        return
    assert part(functions, "unwind", uses) > 0
    assert functions.remainder.get(".eh_frame", 0) <= 12 and ".text" not in functions.remainder
    if name.startswith("macos"):
        assert functions.sections[".eh_frame"] == 8 * len(functions.whole)
        assert part(functions, "exceptions", uses) == functions.sections[".gcc_except_table"] > 0


@pytest.mark.parametrize("name", TARGETS)
def test_instructions_are_those_that_llvm_reports(objects: dict[str, Path], name: str) -> None:
    functions = measure(objects[name])
    printed = subprocess.run(["llvm-readobj-19", "--sections", objects[name]], capture_output=True, text=True).stdout
    code = 0
    for section in printed.split("Section {")[1:]:
        size = re.search(r"^ *(?:RawDataSize|Size): (\w+)", section, re.MULTILINE)
        if size and ("IMAGE_SCN_CNT_CODE" in section or "PureInstructions" in section):
            code += int(size[1], 0)
    assert functions.sections[".text"] == code > 0


def test_removed_function_takes_all_of_its_bytes(objects: dict[str, Path], tmp_path: Path) -> None:
    """What a function is said to have is what the object shrinks by without it, up to padding and shared strings."""
    for name, (triple, uses, _shared) in TARGETS.items():
        without = "\n".join(line for line in SOURCE.splitlines() if not line.startswith("int uses"))
        (tmp_path / "m.cc").write_text(without + "\ntemplate int shared<int>(int, int);\n")
        command = ["clang-19", f"--target={triple}", "-Oz", "-fexceptions", "-c", "m.cc", "-o", "m.o"]
        subprocess.run(command, cwd=tmp_path, check=True)
        before, after = measure(objects[name]), measure(tmp_path / "m.o")
        saved = before.text_size_bytes - before.sections[".rodata"] - after.text_size_bytes + after.sections[".rodata"]
        assert abs(saved - before.by_name()[uses]) <= 16, name


@pytest.mark.parametrize("name", TARGETS)
def test_damaged_object_is_an_error_or_complete(objects: dict[str, Path], name: str) -> None:
    rng = random.Random(name)
    whole = objects[name].read_bytes()
    refused = 0
    for _round in range(300):
        damaged = bytearray(whole[: rng.randrange(8, len(whole))] if rng.random() < 0.4 else whole)
        for _byte in range(rng.choice((1, 20, 300))):
            damaged[rng.randrange(4, len(damaged))] = rng.choice((0, 255, rng.randrange(256)))
        try:
            _size, functions = measure_object(memoryview(bytes(damaged)), want_functions=True)
        except ElfError:
            refused += 1
            continue
        assert functions is not None
        assert int(functions.whole.sum()) + sum(functions.remainder.values()) == functions.text_size_bytes
    assert refused > 20


def test_section_beyond_the_end_of_the_file_is_refused(objects: dict[str, Path]) -> None:
    data = bytearray(objects["macos"].read_bytes())
    name = data.index(b"__text\0")
    data[name + 40 : name + 48] = (2**63 + 5).to_bytes(8, "little")  # its size
    with pytest.raises(ElfError, match="__text"):
        measure_object(memoryview(bytes(data)), want_functions=True)


def test_other_files_are_no_foreign_objects(tmp_path: Path) -> None:
    for content in (b"", b"\x7fELF", b"!<arch>\n", b"BC\xc0\xde"):
        assert open_foreign(memoryview(content)) is None
    with pytest.raises(ElfError, match="header"):
        open_foreign(memoryview(b"\x64\x86"))
    with pytest.raises(ElfError, match="linked"):
        open_foreign(memoryview(b"\xcf\xfa\xed\xfe" + b"\2" * 28))
