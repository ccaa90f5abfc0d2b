"""Constants at -Oz by the release clang: pushed and popped only where that costs no unwind directives."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from components.core.compiler.objects.elf import Elf

pytestmark = pytest.mark.toolchain

STOCK = ("-mllvm", "-mlgo-outline=0")
C = """
long f(int, long, const char *, int, int, unsigned long);
int one(int x) { return f(5, 7, "one", x, -1, 100) ? -1 : 3; }
long two(long x) { long kept = f(17, -99, "two", 127, -128, 90); return f(x, kept, "", 1, 2, 3) < 9 ? 21 : kept; }
unsigned three(unsigned x) { while (f(x, 64, "three", 11, 12, 13)) x = x > 77 ? -5 : 55; return x; }
"""
# Exceptions leave and pass through functions between loads of constants, where the stack was eight bytes longer.
CXX = """
#include <cstdio>
#include <stdexcept>
static int depth;
struct Guard { int n; Guard(int n) : n(n) { depth += n; } ~Guard() { depth -= n; std::printf("~%d ", n); } };
__attribute__((noinline)) long f(int a, long b, int c, unsigned long d) {
  std::printf("%d %ld %d %lu %d; ", a, b, c, d, depth);
  if (a + b + c == 13) throw std::runtime_error("thirteen");
  if (d > 1ul << 63) throw (int)d;
  return a - b + c;
}
__attribute__((noinline)) long g(int x) {
  Guard guard(x);
  long kept = f(3, 4, x, 5) + f(11, -12, 13, 14);
  return kept + f(x, 6, -100, 127) - f(-1, -2, -3, x > 8 ? -128 : 99);
}
int main() {
  for (int x = 0; x < 12; ++x) {
    try { std::printf("= %ld\\n", g(x)); }
    catch (const std::exception &e) { std::printf("%s %ld\\n", e.what(), f(2, 3, 5, 7)); }
    catch (int i) { std::printf("%d\\n", i); }
  }
  return depth;
}
"""


@pytest.fixture(scope="module")
def clang(pretrained_release: Path) -> Path:
    return pretrained_release / "bin" / "clang"


def compiled(clang: Path, source: str, *flags: str | Path) -> bytes:
    """Compile C at -Oz, with LLVM's checks of machine code, and return the output."""
    command: list[str | Path] = [clang, "-Oz", "-mllvm", "-verify-machineinstrs", *flags, "-x", "c", "-", "-o", "-"]
    return subprocess.run(command, input=source.encode(), capture_output=True, check=True).stdout


def pushed(assembly: str) -> list[int]:
    """Return the constants that the code pushes."""
    return [int(value, 0) for value in re.findall(r"\tpushq?\s+\$(-?\w+)\n", assembly)]


def built(clang: Path, program: Path, *flags: str) -> tuple[str, str]:
    """Build the C++ program and return what it prints and its disassembly."""
    command: list[str | Path] = [f"{clang}++", *flags, "-x", "c++", "-", "-o", program]
    subprocess.run(command, input=CXX, text=True, check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    command = ["/usr/lib/llvm-19/bin/llvm-objdump", "-d", "--no-show-raw-insn", program]
    return printed, subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_functions_with_unwind_entries_move_constants(clang: Path) -> None:
    assembly = compiled(clang, C, "-S").decode()
    assert pushed(assembly) == []
    assert ".cfi_adjust_cfa_offset" not in assembly
    assert re.search(r"movl\t\$5, %edi\n", assembly)
    assert re.search(r"movq\t\$-99, %rsi\n", assembly)
    stock = compiled(clang, C, "-S", *STOCK).decode()
    constants = pushed(stock)
    assert {5, 7, -1, 127, -128} < set(constants)
    assert stock.count(".cfi_adjust_cfa_offset") == 2 * len(constants)


@pytest.mark.parametrize(
    "flags",
    [("-fno-asynchronous-unwind-tables",), ("-fno-asynchronous-unwind-tables", "-g"), ("-fno-omit-frame-pointer",)],
    ids=["no-tables", "debug-data", "frame-pointer"],
)
def test_functions_without_directives_push_constants(clang: Path, flags: tuple[str, ...]) -> None:
    constants = pushed(compiled(clang, C, "-S", *flags).decode())
    assert {5, 7, -1, 127, -128} < set(constants)
    assert constants == pushed(compiled(clang, C, "-S", *flags, *STOCK).decode())


def test_debug_data_does_not_change_the_code(clang: Path) -> None:
    plain, debug = (Elf(compiled(clang, C, "-c", *flags)) for flags in ((), ("-g",)))
    assert plain.section(".text") == debug.section(".text")


def test_moves_are_smaller_with_their_unwind_entries(clang: Path) -> None:
    ours, stock = (
        Elf(compiled(clang, C, "-c", *flags)).section_sizes(allocated_only=True)
        for flags in (("-mllvm", "-outliner-benefit-threshold=1000"), STOCK)
    )
    assert ours[".text"] > stock[".text"]
    assert ours[".text"] + ours[".eh_frame"] < 0.9 * (stock[".text"] + stock[".eh_frame"])


@pytest.fixture(scope="module")
def expected(clang: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the program prints at -O0."""
    return built(clang, tmp_path_factory.mktemp("O0") / "program", "-O0")[0]


@pytest.mark.parametrize("lto", [(), ("-flto",), ("-flto=thin",)], ids=["objects", "program", "thinlto"])
def test_exceptions_pass_through_moves(clang: Path, tmp_path: Path, expected: str, lto: tuple[str, ...]) -> None:
    checks = ("-Wl,-mllvm,-verify-machineinstrs",) if lto else ("-mllvm", "-verify-machineinstrs")
    printed, code = built(clang, tmp_path / "program", "-Oz", *lto, *checks)
    assert "thirteen" in printed
    assert printed == expected
    functions = code.split("\n\n")
    assert pushed(next(part for part in functions if re.search(r"<(main|_Z1gi)>:", part))) == []
