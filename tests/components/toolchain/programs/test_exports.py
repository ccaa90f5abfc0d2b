"""What programs and shared libraries of full LTO export, by the release clang and by stock clang."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.components.toolchain.programs.test_linker import STOCK

pytestmark = pytest.mark.toolchain

HEADER = """
#include <map>
#include <string>
#include <vector>
struct Row { std::vector<int> cells; std::string name; };
struct Base { virtual ~Base() {} virtual int inherited() const { return 3; } int plain() const { return 4; } };
inline int called(int x) { return x * 3 + 1; }
inline int compared(int x) { return x * 5 + 2; }
inline int *counter() { static int count; return &count; }
"""
LIBRARY = """
#include "rows.h"
std::map<std::string, Row> rows;
int add(const std::string &name, int cell) {
  Row &row = rows[name];
  row.cells.push_back(called(cell));
  row.name = name + "!";
  ++*counter();
  return row.cells.size() + Base().plain() + Base().inherited();
}
int (*address())(int) { return compared; }
extern "C" int strong(int x) { return called(x) + called(x + 1); }
"""
MAIN = """
#include "rows.h"
#include <cstdio>
int add(const std::string &, int);
int (*address())(int);
extern "C" int strong(int);
int main() {
  int sum = add("a", 1) + add("b", 2) + add("a", called(3));
  std::printf("%d %d %d %d\\n", sum, *counter(), address() == compared, strong(2));
}
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for name, text in (("rows.h", HEADER), ("rows.cc", LIBRARY), ("main.cc", MAIN)):
        (tmp_path / name).write_text(text)
    return tmp_path


def build(clang: Path, directory: Path, library_flags: list[str], main_flags: list[str]) -> tuple[Path, Path]:
    """Return a shared library and a program that is linked with it."""
    output = directory / clang.parent.parent.name
    output.mkdir()
    library, program = output / "librows.so", output / "main"
    flags = ["-Oz", "-fPIC", "-fuse-ld=lld", "-Wl,--gc-sections"]
    commands: tuple[list[str | Path], ...] = (
        ["-shared", "rows.cc", "-o", library, *library_flags],
        ["main.cc", library, "-o", program, f"-Wl,-rpath,{output}", *main_flags],
    )
    for command in commands:
        subprocess.run([clang, *flags, *command], cwd=directory, check=True)
    return library, program


def exported(path: Path) -> set[str]:
    """Return the exported functions."""
    done = subprocess.run(
        ["llvm-nm-19", "-D", "-P", "--defined-only", path], capture_output=True, text=True, check=True
    )
    return {line.split()[0] for line in done.stdout.splitlines() if line.split()[1] in "TW"}


@pytest.mark.parametrize("main_flags", [[], ["-flto", "-rdynamic"]])
def test_full_lto_exports_no_more_than_the_compile_of_files(
    pretrained_release: Path, sources: Path, main_flags: list[str]
) -> None:
    stock, _ = build(STOCK, sources, [], [])
    ours, program = build(pretrained_release / "bin" / "clang++", sources, ["-flto"], main_flags)
    # What the C++ library defines too is exported by whoever has a copy of it.
    assert len(exported(ours)) < len(exported(stock))
    kept = {"_Z3addRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEi", "_Z7addressv", "strong"}
    # An address that is compared is that of all modules.
    assert kept | {"_Z8comparedi"} <= exported(ours)
    assert not {"_Z6calledi", "_ZNK4Base5plainEv"} & (exported(ours) | exported(program))
    # 4 + 3 and the sizes 1, 1 and 2; one counter; equal addresses; 7 + 10.
    assert subprocess.check_output([program], text=True) == "25 3 1 17\n"
    assert ours.stat().st_size < stock.stat().st_size
