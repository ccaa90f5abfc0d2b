"""What a file's own compile decides holds in a program of full LTO, too: names in assembly, sections, exceptions."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.components.toolchain.programs.linked_programs import OPTIONS, Program, run
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
  int r, s, t;
  if (n > 100) shared = n;
  __asm__("movl counter(%%rip), %0" : "=r"(r));
  __asm__("jmp over\\nover: movl shared(%%rip), %0" : "=r"(s));
  __asm__("call called\\n movl undeclared(%%rip), %1\\n addl %1, %0" : "+r"(s), "=r"(t));
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
# ThinLTO makes the table global, as other files import the function.
STATICS = """
__asm__(".text\\nlabel: ret\\n");
static int table[] = {{{values}}};
int of_{name}(int n) {{ return table[n & 1] += 5; }}
int alias_{name}(int) __attribute__((alias("of_{name}")));
int again_{name}(int) __attribute__((alias("alias_{name}")));
"""
CLASS = """
#include "base.h"
struct In_{name} : Base {{ int value(int n) override {{ return n * {value}; }} }};
Base *make_{name}() {{ return new In_{name}; }}
int call_{name}(Base *p, int n) {{ return p->value(n); }}
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
    "statics of files that import from each other": Program(
        {
            "main.c": "#include <stdio.h>\nint of_a(int), of_b(int), again_a(int), again_b(int);\n"
            'int main(int n, char **v) { printf("%d %d %d %d", of_a(n), of_b(n), again_a(n), again_b(n)); }\n',
            "a.c": STATICS.format(name="a", values="1, 2"),
            "b.c": STATICS.format(name="b", values="10, 20"),
        },
        "7 25 12 30",
    ),
    "assembly of functions": Program(
        {
            "main.c": "#include <stdio.h>\nint get_a(int), get_b(int), shared = 70, undeclared = 1000;\n"
            '__attribute__((naked)) void called(void) { __asm__("incl undeclared(%rip)\\nret"); }\n'
            'int main(int n, char **v) { printf("%d %d", get_a(n), get_b(n)); }\n',
            "a.c": FUNCTION_ASSEMBLY.format(name="a", value=1),
            "b.c": FUNCTION_ASSEMBLY.format(name="b", value=2),
        },
        "1072 1074",
        ("-mno-red-zone",),
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
        {"main.cc": THROW, "each": EACH}, "0 1 left stopped", ("each.o",), before="$CC -Oz -flto -x c -c each -o each.o"
    ),
    "an exception through C++ without exceptions": Program(
        {"main.cc": THROW, "each": f'extern "C" {EACH}'},
        "0 1 left stopped",
        ("each.o",),
        before="$CC -Oz -flto -fno-exceptions -x c++ -c each -o each.o",
    ),
}
CHECKS_TYPES = Program(
    {
        "main.cc": '#include "base.h"\n#include <cstdio>\nint main(int n, char **) {\n'
        "  Base *a = make_a(), *b = make_b();\n"
        '  std::printf("%d %d %d %d", call_a(a, n), call_a(b, n), call_b(a, n), call_b(b, n));\n}\n',
        "a.cc": '__asm__(".text\\nlabel: ret\\n");\n' + CLASS.format(name="a", value=4) + "Base::~Base() {}\n",
        "b.cc": CLASS.format(name="b", value=5),
        "base.h": "struct Base { virtual ~Base(); virtual int value(int) = 0; };\n"
        "Base *make_a(), *make_b();\nint call_a(Base *, int), call_b(Base *, int);\n",
    },
    "4 5 4 5",
    ("-fwhole-program-vtables", "-fvisibility=hidden"),
)


def build_and_run(program: Program, root: Path, directory: Path, *more: str) -> str:
    linked = program.build(root, directory, *more)
    assert linked.returncode == 0 and linked.stderr == "", linked.stderr
    return subprocess.run([directory / program.name], capture_output=True, text=True, check=True, timeout=20).stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_is_as_from_objects_of_its_files(toolchain: Path, tmp_path: Path, name: str) -> None:
    program = PROGRAMS[name]
    assert build_and_run(program, toolchain / "bin", tmp_path / "program", KEEP_SMALLER) == program.prints


def test_files_that_check_types_are_one_module(toolchain: Path, tmp_path: Path) -> None:
    """Although the assembly of one makes it a module of ThinLTO elsewhere; else each sees its own classes only."""
    assert build_and_run(CHECKS_TYPES, toolchain / "bin", tmp_path / "program") == CHECKS_TYPES.prints


NAMED = Program(
    {
        "main.c": "void used(void);\nint main(void) { used(); }\n",
        "part.c": """
#include <stdio.h>
__attribute__((section("text_env"), noinline)) void used(void) { printf("used"); }
#ifndef ATTRIBUTES
#define ATTRIBUTES
#endif
__attribute__((section("text_env") ATTRIBUTES)) void unused(void) { printf("not used"); }
""",
    },
    "used",
)
"""A section with an unused function, as lmdb has one."""
READERS: dict[str, tuple[dict[str, str], tuple[str, ...]]] = {
    "no --gc-sections": ({}, ("-Wl,--no-gc-sections",)),
    "__start_": ({"a.c": "extern const char __start_text_env[];\nconst char *start = __start_text_env;\n"}, ()),
    "linker script": (
        {"script.ld": "SECTIONS { .env : { KEEP(*(text_env)) } } INSERT AFTER .text;\n"},
        ("-Wl,-T,script.ld",),
    ),
    "attribute": ({}, ("-DATTRIBUTES=,used",)),
    "assembly of another file": ({"a.c": 'void call(void) { __asm__("call unused"); }\n'}, ()),
    "object": ({"native.c": "void unused(void);\nvoid (*pointer)(void) = unused;\n"}, ()),
    "module of ThinLTO": ({"a.c": '__asm__("label: ret");\nvoid unused(void);\nvoid (*pointer)(void) = unused;\n'}, ()),
    "another program": ({}, ("-Wl,--export-dynamic-symbol=unused",)),
}


@pytest.mark.parametrize("reader", ["", *READERS])
def test_functions_in_named_sections_stay_if_something_reads_the_section(
    toolchain: Path, tmp_path: Path, reader: str
) -> None:
    sources, flags = READERS.get(reader, ({}, ()))
    program = replace(NAMED, sources=NAMED.sources | sources, flags=flags)
    assert build_and_run(program, toolchain / "bin", tmp_path / "program") == program.prints
    names = run("llvm-nm-19", "--format=just-symbols", "program", directory=tmp_path / "program").split()
    assert ("unused" in names) == bool(reader)


def test_thinlto_keeps_sections_and_exceptions(toolchain: Path, tmp_path: Path) -> None:
    sections = PROGRAMS["sections that a linker script reads"]
    assert build_and_run(sections, toolchain / "bin", tmp_path / "sections", "-flto=thin") == sections.prints
    through_c = PROGRAMS["an exception through C"]
    thin = replace(through_c, before=through_c.before.replace("-flto", "-flto=thin"))
    assert build_and_run(thin, toolchain / "bin", tmp_path / "exceptions", "-flto=thin") == thin.prints


def test_relocatable_link_keeps_the_names_of_assembly(toolchain: Path, tmp_path: Path) -> None:
    whole = PROGRAMS["assembly of files with the same names"]
    part = replace(whole, flags=("-r", "-g"), name="part.o")
    assert part.build(toolchain / "bin", tmp_path / "part").returncode == 0
    program = Program({"empty.c": ""}, whole.prints, (str(tmp_path / "part" / "part.o"), "-Wl,--icf=none"))
    assert build_and_run(program, toolchain / "bin", tmp_path / "program") == program.prints


def test_assembly_includes_the_files_of_its_compile(toolchain: Path, tmp_path: Path) -> None:
    """The link runs in another directory, and knows no -I."""
    directory, clang = tmp_path / "directory", toolchain / "bin" / "clang"
    (directory / "include").mkdir(parents=True)
    (directory / "include" / "data").write_text("included")
    (directory / "more.s").write_text('.asciz " file"\n')
    (directory / "data.c").write_text(
        '__asm__(".pushsection .rodata\\n.globl data\\ndata: .incbin \\"data\\"\\n"'
        '".include \\"more.s\\"\\n.popsection");\n'
    )
    (directory / "main.c").write_text(
        "extern const char data[];\nint puts(const char *);\nint main(void) { puts(data); }\n"
    )
    run(clang, *OPTIONS, "-Iinclude", "-c", "data.c", "main.c", directory=directory)
    run(clang, *OPTIONS, "directory/data.o", "directory/main.o", "-o", "program", directory=tmp_path)
    assert run(tmp_path / "program", directory=tmp_path) == "included file\n"


def test_values_in_named_sections_are_those_of_the_linked_file(toolchain: Path, tmp_path: Path) -> None:
    """A tool writes them after the link."""
    part = 'const int revision __attribute__((section(".revision"))) = 1;\n'
    part += 'int limit __attribute__((section(".limit"))) = 2;\n'
    main = "#include <stdio.h>\nextern const int revision;\nextern int limit;\n"
    main += 'int main(void) { printf("%d %d", revision, limit); return 0; }\n'
    program = Program({"main.c": main, "part.c": part}, "1 2")
    assert build_and_run(program, toolchain / "bin", tmp_path / "program") == "1 2"
    (tmp_path / "value").write_bytes((7).to_bytes(4, "little"))
    sections = ["--update-section=.revision=value", "--update-section=.limit=value"]
    run("llvm-objcopy-19", *sections, "program/program", "changed", directory=tmp_path)
    assert run(tmp_path / "changed", directory=tmp_path) == "7 7"


def test_zeros_of_one_file_stay_out_of_bss(toolchain: Path, tmp_path: Path) -> None:
    clang = toolchain / "bin" / "clang"
    text = "int NAME; static int local_NAME; int *address_NAME(void) { return &local_NAME; }\n"
    for name in ("data", "bss"):
        (tmp_path / f"{name}.c").write_text(text.replace("NAME", name))
    (tmp_path / "main.c").write_text(
        "extern int data, bss, *address_data(void), *address_bss(void);\nint *volatile use;\n"
        "int main(void) { use = &data; use = &bss; use = address_data(); use = address_bss(); }\n"
    )
    run(clang, *OPTIONS, "-fno-zero-initialized-in-bss", "-c", "data.c", directory=tmp_path)
    run(clang, *OPTIONS, "data.o", "bss.c", "main.c", "-o", "program", directory=tmp_path)
    lines = [line.split()[1:] for line in run("llvm-nm-19", "program", directory=tmp_path).splitlines()]
    types = {name.split(".")[0]: symbol.lower() for symbol, name in filter(lambda words: len(words) == 2, lines)}
    assert [types[name] for name in ("data", "local_data", "bss", "local_bss")] == ["d", "d", "b", "b"]


def test_option_of_passes_that_the_link_runs_is_a_warning_with_a_remedy(toolchain: Path, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    command = [str(toolchain / "bin" / "clang"), "-Oz", "-c", "main.c", "-mllvm", "-inline-threshold=9", "-mllvm"]
    for flags, says in ((["-flto"], "pass -Wl,-mllvm,-inline-threshold=9 to the link"), ([], "")):
        done = subprocess.run([*command, "-mlgo-fold=0", *flags], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0 and (says in done.stderr if says else not done.stderr)


@pytest.mark.parametrize("lto", ["-flto", "-flto=thin"])
def test_aliases_of_aliases_that_a_program_may_replace_are_linked(toolchain: Path, tmp_path: Path, lto: str) -> None:
    (tmp_path / "lib.c").write_text(
        "int f(int x) { return x * 3; }\nstatic int s(int x) { return x + 1; }\n"
        'int g(int) __attribute__((alias("f")));\nint h(int) __attribute__((alias("g")));\n'
        'int t(int) __attribute__((alias("s")));\nint u(int) __attribute__((alias("t")));\n'
    )
    (tmp_path / "main.c").write_text(
        "#include <stdio.h>\nint f(int), h(int), u(int);\nint g(int x) { return -f(x); }\n"
        'int main(void) { printf("%d %d %d %d", f(1), g(2), h(3), u(5)); return 0; }\n'
    )
    clang = toolchain / "bin" / "clang"
    shared = ["-fPIC", "-fsemantic-interposition", "-shared", "lib.c", "-o", "lib.so"]
    run(clang, *OPTIONS, lto, *shared, directory=tmp_path)
    run(clang, *OPTIONS, "main.c", "./lib.so", "-o", "program", directory=tmp_path)
    assert run("./program", directory=tmp_path) == "3 -6 9 6"
