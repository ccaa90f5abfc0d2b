"""What a file's own compile decides holds in a program of full LTO, too: names in assembly, sections, exceptions."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.components.toolchain.programs.linked_programs import Program
from tests.components.toolchain.programs.test_linker import toolchain

pytestmark = pytest.mark.toolchain
__all__ = ["toolchain"]

KEEP_SMALLER = "-Wl,-mllvm,-mlgo-keep-smaller"


def assembly(name: str, value: int) -> str:
    """Return a file whose assembly defines and names symbols that another such file has, too."""
    return f"""
__attribute__((used)) static int get(void) {{ return {value}; }}
__asm__(".pushsection .data.rel,\\"aw\\"\\n.globl pointer_{name}\\npointer_{name}: .quad get\\n.popsection");
__asm__(".pushsection .rodata\\nlocal: .long {value} + 1\\n.popsection");
extern const int local __attribute__((visibility("hidden")));
int local_{name}(void) {{ return local; }}
__asm__(".macro number\\n.long {value} + 2\\n.endm\\n.pushsection .rodata\\n"
        ".globl number_{name}\\nnumber_{name}: number\\n.popsection");
static int target(int x) {{ return x + {value}; }}
int calls_{name}(int x) {{ return target(x); }}
__asm__(".globl set_{name}\\n.set set_{name}, target");
static int counter = {value} + 3;
int *counter_{name}(void) {{ return &counter; }}
int inline_{name}(void) {{ int r; __asm__("movl counter(%%rip), %0" : "=r"(r)); return r; }}
static int labeled __asm__("renamed") = {value} + 4;
int *labeled_{name}(void) {{ return &labeled; }}
int label_{name}(void) {{ int r; __asm__("movl renamed(%%rip), %0" : "=r"(r)); return r; }}
"""


FUNCTION_ASSEMBLY = """
extern int shared;
static int counter = {value};
int *counter_{name}(void) {{ return &counter; }}
int get_{name}(int n) {{
  int r, s;
  if (n > 100) shared = n;
  __asm__("movl counter(%%rip), %0" : "=r"(r));
  __asm__("jmp over\\nover: movl shared(%%rip), %0" : "=r"(s));
  return r + s;
}}
"""
TABLE = """
struct command { const char *name; };
#define COMMAND(n) \\
  const struct command command_##n = {#n}; \\
  const struct command *const entry_##n __attribute__((section(".commands." #n))) = &command_##n;
"""
SCRIPT = "SECTIONS { .commands : { begin = .; KEEP(*(SORT(.commands.*))) end = .; } } INSERT AFTER .data;\n"
EACH = "void each(int n, void (*f)(int, void *), void *p) { for (int i = 0; i < n; ++i) f(i, p); }\n"
THROW = """
#include <cstdio>
#include <stdexcept>
extern "C" void each(int n, void (*f)(int, void *), void *p);
struct Guard { ~Guard() { std::printf("left "); } };
static void stop(int i, void *) {
  if (i == 2) throw std::runtime_error("stopped");
  std::printf("%d ", i);
}
int main() {
  try { Guard guard; each(10, stop, nullptr); } catch (const std::exception &e) { std::printf("%s", e.what()); }
}
"""
PROGRAMS = {
    "assembly of files with the same names": Program(
        {
            "main.c": """
#include <stdio.h>
#define PRINT(n) { \\
  extern int (*pointer_##n)(void), number_##n; \\
  int local_##n(void), set_##n(int), inline_##n(void), label_##n(void); \\
  printf("%d %d %d %d %d %d ", pointer_##n(), local_##n(), number_##n, set_##n(1), inline_##n(), label_##n()); }
int code(void);
int main(void) { PRINT(a) PRINT(b) printf("%d", code()); }
""",
            "a.c": assembly("a", 100) + '__asm__(".section .left,\\"aw\\"");\n',
            "b.c": '__asm__(".globl code\\ncode: movl $7, %eax\\nret");\n' + assembly("b", 200),
        },
        "100 101 102 101 103 104 200 201 202 201 203 204 7",
    ),
    "assembly of functions": Program(
        {
            "main.c": "#include <stdio.h>\nint get_a(int), get_b(int), shared = 70;\n"
            'int main(int n, char **v) { printf("%d %d", get_a(n), get_b(n)); }\n',
            "a.c": FUNCTION_ASSEMBLY.format(name="a", value=1),
            "b.c": FUNCTION_ASSEMBLY.format(name="b", value=2),
        },
        "71 72",
    ),
    "sections that a linker script reads": Program(
        {
            "main.c": """
#include <stdio.h>
#include "table.h"
extern const struct command *const begin[], *const end[];
int main(void) { for (const struct command *const *c = begin; c < end; ++c) printf("%s ", (*c)->name); }
""",
            "a.c": '#include "table.h"\nCOMMAND(last) COMMAND(add)\n',
            "b.c": '#include "table.h"\nCOMMAND(list) COMMAND(drop)\n',
            "table.h": TABLE,
            "script.ld": SCRIPT,
        },
        "add drop last list ",
        ("-Wl,-T,script.ld",),
    ),
    "sections of the C library and of the linker": Program(
        {
            "main.c": """
#include <stdio.h>
extern int __start_numbers[], __stop_numbers[];
int main(void) {
  int sum = 0;
  for (int *p = __start_numbers; p < __stop_numbers; ++p) sum += *p;
  printf("%d", sum);
}
""",
            "part.c": """
#include <stdio.h>
int number __attribute__((section("numbers"))) = 30;
static int other __attribute__((section("numbers"), used)) = 4;
static void first(void) { printf("first "); }
void (*const entry)(void) __attribute__((section(".init_array"))) = first;
static void early(void) { printf("early "); }
__attribute__((used)) static void (*const second)(void) __attribute__((section(".preinit_array"))) = early;
__attribute__((constructor(200))) static void third(void) { printf("200 "); }
""",
        },
        "early 200 first 34",
        ("-Wl,-z,nostart-stop-gc",),
    ),
    "an exception through C": Program(
        {"main.cc": THROW, "each": EACH},
        "0 1 left stopped",
        ("each.o",),
        before="$CC -Oz -flto -x c -c each -o each.o",
    ),
    "an exception through C++ without exceptions": Program(
        {"main.cc": THROW, "each": f'extern "C" {EACH}'},
        "0 1 left stopped",
        ("each.o",),
        before="$CC -Oz -flto -fno-exceptions -x c++ -c each -o each.o",
    ),
}


def build_and_run(program: Program, root: Path, directory: Path, *more: str) -> str:
    linked = program.build(root, directory, *more)
    assert linked.returncode == 0 and linked.stderr == "", linked.stderr
    return subprocess.run([directory / program.name], capture_output=True, text=True, check=True, timeout=20).stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_is_as_from_objects_of_its_files(toolchain: Path, tmp_path: Path, name: str) -> None:
    program = PROGRAMS[name]
    assert build_and_run(program, toolchain / "bin", tmp_path / "program", KEEP_SMALLER) == program.prints
