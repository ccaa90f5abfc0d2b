"""Links use a library function only where the resolution has it, as if the compile of a file had made the call."""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.components.toolchain.programs import library_calls
from tests.components.toolchain.programs.library_calls import LIBRARY, ROWS, RUNTIME, TYPES, Row, runner
from tests.components.toolchain.programs.linked_programs import Program, run
from tests.components.toolchain.programs.test_linker import toolchain

pytestmark = pytest.mark.toolchain
__all__ = ["toolchain"]

STOCK = Path("/usr/lib/llvm-19/bin")
DEFINITIONS = Path("/usr/lib/llvm-19/include/llvm/Analysis/TargetLibraryInfo.def")
SIZE = ["-Oz", "-flto", "-w"]
FREESTANDING = ["-nostdlib", "-static", "-Wl,--gc-sections"]


def test_each_library_function_of_llvm_has_its_row() -> None:
    names = set(re.findall(r'TLI_DEFINE_STRING(?:_INTERNAL)?\("(.*?)"\)', DEFINITIONS.read_text()))
    listed = [row.introduced for row in ROWS]
    listed += [*library_calls.OTHER_TARGETS, *library_calls.INTRINSICS, *library_calls.NEVER_INTRODUCED]
    assert len(listed) == len(set(listed)) and set(listed) < names
    for name in names - set(listed):
        assert name.startswith(library_calls.NEVER_INTRODUCED_PREFIXES) or name.endswith(
            library_calls.NEVER_INTRODUCED_SUFFIX
        )


class Build:
    """The objects of the rows and of the library, and their links."""

    def __init__(self, clang: Path, directory: Path) -> None:
        self.clang, self.directory = clang, directory
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self._compile_function, LIBRARY))
            list(pool.map(self._compile_row, ROWS))
        self.compile("runtime", RUNTIME, "-O1", "-fno-builtin")
        self.compile("run_row", runner(["row"]), "-O1")
        self.compile("run_all", runner([row.function for row in ROWS]), "-O1")

    def compile(self, name: str, text: str, *flags: str) -> None:
        (self.directory / f"{name}.c").write_text(text)
        run(self.clang, "-w", *flags, "-c", f"{name}.c", "-o", f"{name}.o", directory=self.directory)

    def _compile_function(self, name: str) -> None:
        self.compile(f"native_{name}", TYPES + LIBRARY[name], "-O1", "-fno-builtin")
        self.compile(f"bitcode_{name}", TYPES + LIBRARY[name], *SIZE, "-fno-builtin")

    def _compile_row(self, row: Row) -> None:
        self.compile(row.function, row.source(), *SIZE, *row.flags)

    def link(self, name: str, objects: Iterable[str], library: Iterable[str], *flags: str) -> None:
        inputs = [f"{part}.o" for part in ("runtime", *objects)]
        members = ["-Wl,--start-lib", *(f"{part}.o" for part in library), "-Wl,--end-lib"]
        run(self.clang, *SIZE, *FREESTANDING, *flags, *inputs, *members, "-o", name, directory=self.directory)

    def prints(self, name: str) -> str:
        return run(f"./{name}", directory=self.directory)


@pytest.fixture
def build(toolchain: Path, tmp_path: Path) -> Build:
    return Build(toolchain / "bin" / "clang", tmp_path)


def test_function_that_is_not_resolved_is_not_introduced(build: Build) -> None:
    """Each row without its function, with it as bitcode of an archive, and with it as a native object of an archive.

    Lazily linked bitcode can no longer be taken, a native object can. There the row shows that LLVM does introduce the
    function. At -O0 all of a row's calls are as the source has them.
    """
    build.compile("unoptimized", "".join(row.source() for row in ROWS), "-O0", "-fno-builtin")
    native = {name: f"native_{name}" for name in LIBRARY}
    build.link("reference", ["unoptimized", "run_all"], native.values())
    expected = build.prints("reference")

    def outputs(row: Row) -> tuple[str, str, str]:
        result = []
        absent = {name: member for name, member in native.items() if name != row.introduced}
        for kind, library in (
            ("absent", absent),
            ("lazy", {**native, row.introduced: f"bitcode_{row.introduced}"}),
            ("native", native),
        ):
            name = f"{kind}_{row.introduced}"
            flags = (f"-Wl,--defsym,row={row.function}", *row.linker)
            build.link(name, [row.function, "run_row"], library.values(), *flags)
            result.append(build.prints(name))
        # Code generation makes memcpy of mempcpy.
        symbol = f"\0{row.introduced}\0".encode()
        assert row.introduced == "mempcpy" or symbol in (build.directory / f"native_{row.introduced}").read_bytes()
        return result[0], result[1], result[2]

    with ThreadPoolExecutor(2) as pool:
        printed = list(pool.map(outputs, ROWS))
    for column in zip(*printed, strict=True):
        assert "".join(column) == expected

    # The whole library as bitcode of the link, some of it linked for the rows.
    build.link("bitcode", [*(row.function for row in ROWS), "run_all"], [f"bitcode_{name}" for name in LIBRARY])
    assert build.prints("bitcode") == expected


CALLS_PRINTF = 'int printf(const char *, ...);\nint main(void) { printf("hello\\n"); return 0; }\n'
OWN_PUTS = """\
long write(int, const void *, unsigned long);
unsigned long strlen(const char *);
int puts(const char *s) {
  write(1, "[own]", 5);
  write(1, s, strlen(s));
  write(1, "\\n", 1);
  return 0;
}
"""
OWN_PRINTF = """\
long write(int, const void *, unsigned long);
unsigned long strlen(const char *);
int printf(const char *s, ...) {
  write(1, "[f]", 3);
  write(1, s, strlen(s));
  return 0;
}
"""
ARCHIVED = {"main.c": CALLS_PRINTF, "puts": OWN_PUTS, "printf": OWN_PRINTF}
BITCODE = "for f in puts printf; do $CC -Oz -flto -x c -c $f -o $f.o; done; llvm-ar-19 rc libown.a puts.o printf.o"
NATIVE = BITCODE.replace("-flto ", "-fno-builtin ")
CASES = {
    "archive of bitcode": Program(ARCHIVED, "[f]hello\n", ("libown.a",), BITCODE),
    "archive of native objects": Program(ARCHIVED, "[f]hello\n", ("libown.a",), NATIVE),
    "archive behind the library": Program(ARCHIVED, "hello\n", ("-lc", "libown.a"), NATIVE),
    "objects between --start-lib and --end-lib": Program(
        ARCHIVED, "[f]hello\n", ("-Wl,--start-lib,puts.o,printf.o,--end-lib",), BITCODE
    ),
    "archive and -u": Program(ARCHIVED, "[f]hello\n", ("libown.a", "-Wl,-u,puts"), BITCODE),
    "a file that its assembly separates": Program(
        {
            **ARCHIVED,
            "main.c": "__attribute__((used)) static int number = 3;\n"
            '__asm__(".pushsection .data\\n.globl pointer\\npointer: .quad number\\n.popsection");\n' + CALLS_PRINTF,
        },
        "[own]hello\n",
        ("libown.a",),
        BITCODE,
    ),
    "own puts": Program({"main.c": CALLS_PRINTF, "puts.c": OWN_PUTS}, "hello\n"),
    "own native puts": Program({"main.c": CALLS_PRINTF, "native.c": OWN_PUTS}, "[own]hello\n"),
    "static puts of another file": Program(
        {
            "main.c": CALLS_PRINTF,
            "other.c": "static int calls;\n"
            "__attribute__((used, noinline)) static int puts(const char *s) { return ++calls; }\n"
            "int other(int x) { return x ? puts(0) : calls; }\n",
        },
        "hello\n",
    ),
    "variable puts": Program({"main.c": CALLS_PRINTF, "native.c": "int puts = 3;\n"}, "hello\n"),
    "wrapped puts": Program(
        {"main.c": CALLS_PRINTF, "wrap.c": OWN_PUTS.replace("puts(", "__wrap_puts(")}, "hello\n", ("-Wl,--wrap=puts",)
    ),
    "puts by --defsym": Program(
        {"main.c": CALLS_PRINTF, "own.c": OWN_PUTS.replace("puts(", "own_puts(")},
        "hello\n",
        ("-Wl,--defsym=puts=own_puts",),
    ),
    "static link": Program({"main.c": CALLS_PRINTF}, "hello\n", ("-static",)),
    "native member that needs what LTO makes local": Program(
        {
            "main.c": CALLS_PRINTF.replace("int main", "int own_write(const char *);\nint main").replace(
                "return 0", 'return own_write("x\\n")'
            ),
            "write.c": "long write(int, const void *, unsigned long);\nstatic int calls;\n"
            "int own_write(const char *s) { return write(1, s, 2) - 2 + calls * 0; }\n",
            "puts": "int own_write(const char *);\nint puts(const char *s) { return own_write(s) + own_write(s); }\n",
        },
        "x\nhello\n",  # the C library writes at the end
        ("libputs.a",),
        "$CC -Oz -x c -c puts -o puts.o; llvm-ar-19 rc libputs.a puts.o",
    ),
    "constant calls without the library": Program(
        {
            "main.c": "#include <stdio.h>\n#include <math.h>\n"
            'int main(void) { printf("%g %g", pow(2, 10), sqrt(81)); return 0; }\n'
        },
        "1024 9",
    ),
    "own malloc": Program(
        {
            "main.c": """\
#include <stdlib.h>
#include <string.h>
#include <stdio.h>
struct node { long key; char text[200]; };
extern int calls;
__attribute__((noinline)) struct node *make(long key) {
  struct node *n = malloc(sizeof *n);
  if (!n) return 0;
  memset(n, 0, sizeof *n);
  n->key = key;
  return n;
}
int main(int argc, char **argv) {
  struct node *volatile n = make(argc);
  free(malloc(8));
  printf("%d %d %d", n->text[100], (int)n->key, calls);
  return 0;
}
""",
            "alloc.c": """\
#include <stddef.h>
#include <string.h>
static char arena[1 << 20] __attribute__((aligned(16)));
static size_t used;
int calls;
void *malloc(size_t n) {
  size_t at = used;
  used += (n + 15) & -16ul;
  ++calls;
  return memset(arena + at, 5, n);
}
void *calloc(size_t a, size_t b) { return memset(malloc(a * b), 0, a * b); }
void *realloc(void *p, size_t n) { return p && n ? memcpy(malloc(n), p, n) : malloc(n); }
void free(void *p) { calls += 10; }
""",
        },
        "0 1 12",  # calls before printf's
    ),
    "own memory functions that are library loops": Program(
        {
            "main.c": """\
#include <stdio.h>
void *memcpy(void *, const void *, unsigned long), *memset(void *, int, unsigned long);
void *memmove(void *, const void *, unsigned long);
unsigned long strlen(const char *);
char a[64], b[64];
volatile int n = 20;
int main(void) {
  memset(a, 'x', n);
  memcpy(b, a, n + 1);
  memmove(b + 1, b, n);
  printf("%s %d", b, (int)strlen(b + n - 1));
  return 0;
}
""",
            "memory.c": """\
typedef unsigned long size_t;
__attribute__((noinline)) static void copy(char *restrict to, const char *restrict from, size_t n) {
  if (n) do *to++ = *from++; while (--n);
}
void *memcpy(void *restrict to, const void *restrict from, size_t n) {
  copy(to, from, n);
  return to;
}
static inline void fill(char *to, int c, size_t n) {
  if (n) do *to++ = c; while (--n);
}
void *memset(void *to, int c, size_t n) {
  fill(to, c, n);
  return to;
}
void *memmove(void *to, const void *from, size_t n) {
  char *t = to;
  const char *f = from;
  if (t < f) {
    if (n) do *t++ = *f++; while (--n);
  } else {
    if (n) do t[n - 1] = f[n - 1]; while (--n);
  }
  return to;
}
size_t strlen(const char *s) {
  const char *e = s;
  while (*e) ++e;
  return e - s;
}
""",
        },
        "xxxxxxxxxxxxxxxxxxxxx 2",
    ),
}


COMPILED_CALLS = ("a file that its assembly separates", "own native puts", "constant calls without the library")
"""Where the compile of a file makes the call, as stock clang does, or computes its result."""


@pytest.mark.parametrize("name", CASES)
def test_program_calls_what_its_files_call(toolchain: Path, tmp_path: Path, name: str) -> None:
    """As without optimization."""
    program = CASES[name]
    for directory, more in (
        ("heuristic", ()),
        ("smaller", ("-Wl,-mllvm,-mlgo-keep-smaller",)),
        ("O0", ("-O0", "-fno-lto", "-fno-builtin")),
    ):
        if directory == "O0" and name in COMPILED_CALLS:
            continue
        linked = program.build(toolchain / "bin", tmp_path / directory, *more)
        assert linked.returncode == 0, linked.stderr
        assert run(f"./{program.name}", directory=tmp_path / directory) == program.prints


def test_saved_module_has_the_attributes_and_gives_the_same_object(toolchain: Path, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(CALLS_PRINTF)
    (tmp_path / "puts.c").write_text(OWN_PUTS)
    saved = ["-Wl,--save-temps=internalize", "-Wl,--lto-obj-path=linked.o"]
    clang = toolchain / "bin" / "clang"
    run(clang, *SIZE, "main.c", "puts.c", *saved, "-o", "out", directory=tmp_path)
    module = run("llvm-dis-19", "out.0.2.internalize.bc", "-o", "-", directory=tmp_path)
    assert '"no-builtin-puts"' in module and '"no-builtin-putchar"' not in module
    flags = ["-Oz", "-fPIE", "-ffunction-sections", "-fdata-sections", "-mllvm", "-mlgo-program"]
    flags += ["-Xclang", "-main-file-name", "-Xclang", "ld-temp.o", "-Qunused-arguments", "-x", "ir"]
    run(clang, *flags, "-c", "out.0.2.internalize.bc", "-o", "compiled.o", directory=tmp_path)
    assert (tmp_path / "compiled.o").read_bytes() == (tmp_path / "linked.o").read_bytes()
    # Bitcode for another link, which resolves the symbols.
    run(clang, *SIZE, "-r", "main.c", "-Wl,--lto-emit-llvm", "-o", "part.bc", directory=tmp_path)
    assert "no-builtin" not in run("llvm-dis-19", "part.bc", "-o", "-", directory=tmp_path)


def test_object_and_library_introduce_what_they_need_anyway(toolchain: Path, tmp_path: Path) -> None:
    """Links with undefined symbols: puts is one if something else refers to it."""
    clang = toolchain / "bin" / "clang"
    sources = {"one.c": 'int printf(const char *, ...);\nint one(void) { return printf("one\\n") & 0; }\n'}
    sources["two.c"] = "int puts(const char *);\nint two(const char *s) { return puts(s) & 0; }\n"
    for name, text in sources.items():
        (tmp_path / name).write_text(text)

    def undefined(*flags: str) -> set[str]:
        run(clang, *SIZE, "-fPIC", "-nostdlib", *flags, "-o", "part.o", directory=tmp_path)
        return {line.split()[-1] for line in run("llvm-nm-19", "-u", "part.o", directory=tmp_path).splitlines()}

    for kind in ("-r", "-shared"):
        assert undefined(kind, "one.c") == {"printf"}
        assert undefined(kind, "one.c", "two.c") == {"puts"}
