"""An option of one file holds in that file, and in no other, of a program that full LTO compiles as one module."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.components.toolchain.programs.linked_programs import run
from tests.components.toolchain.programs.test_linker import toolchain

pytestmark = pytest.mark.toolchain
__all__ = ["toolchain"]


@dataclass(frozen=True)
class FileOption:
    """An option and what shows it.

    Attributes:
        function: C source of a function NAME.
        shows: A regular expression that the function's instructions match with the option and not without it.
        hides: The same for instructions that are there only without the option.
    """

    function: str
    shows: str = ""
    hides: str = ""


STRLEN = "unsigned long NAME(void) { extern unsigned long strlen(const char *); return strlen(TEXT); }"
LIBRARY_CALL = FileOption(STRLEN, shows="<strlen")
COPY = FileOption(
    "void NAME(long *p, long *q) { struct s { long a[4]; }; *(struct s *)p = *(struct s *)q; }", hides="xmm"
)
CALLS = "int NAME(void) { extern int getpid(void); return getpid() + NUMBER; }"
ARRAY = "int NAME(int i) { volatile int a[9]; a[i] = NUMBER; return a[1]; }"
NEXT = "int NAME(int x) { return x + NUMBER; }"
CASES = " ".join(f"case {i}: return number({i * i % 7}) {'+-^*'[i % 4]} {i * 37 % 11};" for i in range(9))
OPTIONS = {
    "-fwrapv": FileOption("int NAME(int x) { return x + NUMBER > x; }", shows=r"cmp|\bset|jo"),
    "-ftrapv": FileOption(NEXT, shows="ud1|ud2"),
    "-fno-delete-null-pointer-checks": FileOption(
        "int NAME(int *p) { int v = *p; return p ? v : -1; }", shows="test|cmp"
    ),
    "-fno-builtin": LIBRARY_CALL,
    "-fno-builtin-strlen": LIBRARY_CALL,
    "-ffreestanding": LIBRARY_CALL,
    "-ffp-contract=off": FileOption(
        '__attribute__((target("fma"))) double NAME(double x, double y, double z) { return x * y + z; }', hides="vfmadd"
    ),
    "-ffp-contract=fast": FileOption(
        '__attribute__((target("fma"))) double NAME(double x, double y, double z) { double t = x * y; return t + z; }',
        shows="vfmadd",
    ),
    "-fno-math-errno": FileOption(
        "double NAME(double x) { extern double sqrt(double); return sqrt(x); }", hides="<sqrt"
    ),
    "-frounding-math": FileOption("double NAME(double x) { return x + 1.0 / 3.0; }", shows="divsd"),
    "-ffp-exception-behavior=strict": FileOption("double NAME(double x) { (void)(x / 3.0); return x; }", shows="divsd"),
    "-fno-jump-tables": FileOption(
        f"int NAME(int x) {{ extern int number(int); switch (x) {{ {CASES} }} return 0; }}", hides=r"jmpq?\s+\*"
    ),
    "-mno-red-zone": FileOption(ARRAY, shows="sub|push"),
    "-mno-implicit-float": COPY,
    "-mno-sse": COPY,
    "-mavx2": FileOption("float NAME(float x, float y) { return x * y; }", shows="vmulss"),
    "-mno-tls-direct-seg-refs": FileOption(
        "int NAME(void) { extern _Thread_local int local; return local; }", shows="fs:0"
    ),
    "-mstackrealign": FileOption(ARRAY.replace("= NUMBER", "= i"), shows=r"and[ql]\s+\$-"),
    "-mspeculative-load-hardening": FileOption(
        "int NAME(int x, int *p) { if (x) return p[x]; return 0; }", shows="cmov"
    ),
    "-mharden-sls=all": FileOption(NEXT, shows="int3"),
    "-mfunction-return=thunk-extern": FileOption(NEXT, shows="__x86_return_thunk"),
    "-fstack-protector-all": FileOption(ARRAY, shows="%fs:"),
    "-fstack-clash-protection": FileOption(ARRAY.replace("[9]", "[9000]"), shows=r"\$0x1000"),
    "-fno-omit-frame-pointer": FileOption(CALLS, shows="%rbp"),
    "-fno-optimize-sibling-calls": FileOption(
        "int NAME(void) { extern int getpid(void); return getpid(); }", hides=r"jmpq?\s.*<getpid"
    ),
    "-fno-strict-aliasing": FileOption(
        "int NAME(int *p, float *q) { *p = 1; *q = 0; return *p; }", shows=r"\(%rdi\), %eax"
    ),
    "-ffast-math": FileOption("double NAME(double x, double y) { return (x + y) - x; }", hides="subsd"),
    "-fno-signed-zeros": FileOption("double NAME(double x) { return x + 0.0; }", hides="addsd"),
    "-O0": FileOption("int NAME(int x) { int y = x + NUMBER; return y * 2; }", shows="%rbp"),
    "-fno-inline": FileOption(
        "static int NAME_inner(int x) { return x + NUMBER; }\nint NAME(int x) { return NAME_inner(x); }", shows="_inner"
    ),
    "-fpatchable-function-entry=3": FileOption(NEXT, shows="nop"),
    "-fxray-instrument -fxray-instruction-threshold=1": FileOption(NEXT, shows="nopw"),
    "-pg": FileOption(NEXT, shows="mcount"),
    "-pg -mfentry": FileOption(NEXT, shows="__fentry__"),
    "-finstrument-functions": FileOption(NEXT, shows="func_enter(?!.*func_enter).*func_exit(?!.*func_exit)"),
    "-ftrivial-auto-var-init=pattern": FileOption(
        "int NAME(int i) { extern void fill(int *); int a[4]; fill(a); return a[i]; }", shows="movaps|aaaa"
    ),
    "-fzero-call-used-regs=used-gpr": FileOption("int NAME(int x, int y) { return x * y + NUMBER; }", shows="xorl"),
    "-femulated-tls": FileOption(
        "static _Thread_local int NAME_v; int NAME(void) { return ++NAME_v; }", shows="emutls"
    ),
}
MAIN = """
_Thread_local int local;
int *volatile address;
__attribute__((constructor)) static void change(void) { address = &local; *address = 3; }
__attribute__((noinline)) int number(int x) { return *address * x; }
__attribute__((noinline)) void fill(int *p) { address = p; }
__attribute__((naked)) void __x86_return_thunk(void) { __asm__("ret"); }
__attribute__((naked)) void __fentry__(void) { __asm__("ret"); }
"""


def source(name: str, option: FileOption, number: int) -> str:
    text = option.function.replace("TEXT", f'"{number}"').replace("NUMBER", str(number))
    return text.replace("NAME", name) + "\n"


def compile_program(clang: Path, directory: Path, *flags: str) -> dict[str, str]:
    """Return the instructions of each function of a program of one file per option and one file without."""
    names = []
    command: list[str | Path] = [clang, "-Oz", "-w", *flags]
    plain = ""
    for i, (option, check) in enumerate(OPTIONS.items()):
        (directory / f"with{i}.c").write_text(source(f"with{i}", check, 2 * i + 11))
        plain += source(f"without{i}", check, 2 * i + 12)
        names += [f"with{i}", f"without{i}"]
        run(*command, *option.split(), "-c", f"with{i}.c", directory=directory)
    (directory / "plain.c").write_text(plain)
    uses = "".join(f"extern char {name};\n" for name in names)
    uses += "char *volatile use;\nint main(void) {\n" + "".join(f"  use = &{name};\n" for name in names) + "}\n"
    (directory / "main.c").write_text(MAIN + uses)
    objects = [f"with{i}.o" for i in range(len(OPTIONS))]
    link = ["-fuse-ld=lld", "-Wl,-mllvm,-mlgo-outline=0", *objects, "main.c", "plain.c", "-lm", "-o", "program"]
    run(*command, *link, directory=directory)
    text = run("llvm-objdump-19", "-d", "--no-show-raw-insn", "program", directory=directory)
    return dict(re.findall(r"^[0-9a-f]+ <(\w+)>:\n((?:.+\n)*)", text, re.MULTILINE))


def missing(functions: dict[str, str]) -> list[str]:
    """Return the options that a function does not show, or that show in the other function."""
    result = []
    for i, (option, check) in enumerate(OPTIONS.items()):
        for name, has in ((f"with{i}", True), (f"without{i}", False)):
            shown = bool(re.search(check.shows or check.hides, functions[name], re.DOTALL))
            if shown != (has if check.shows else not has):
                result.append(f"{option}: {name}\n{functions[name]}")
    return result


def test_option_of_a_file_holds_in_that_file_only(toolchain: Path, tmp_path: Path) -> None:
    assert missing(compile_program(toolchain / "bin" / "clang", tmp_path, "-flto")) == []
