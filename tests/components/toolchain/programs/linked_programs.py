"""Programs whose links need more than the functions of their own sources, and how to build them."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

OPTIONS = ["-Oz", "-flto", "-fuse-ld=lld", "-w"]
SECTIONS = ["-Wl,--gc-sections,--icf=safe"]
OF_FILE = {"native": ["-fno-lto"], "speed": ["-O2"], "wrapping": ["-fwrapv"]}


@dataclass(frozen=True)
class Program:
    """A program and how to build it.

    Attributes:
        sources: The files to write, by name. Sources are compiled and linked in this order; `native*.c` are compiled
            without LTO, `speed*.c` with -O2, `wrapping*.c` with -fwrapv; other files are there for `flags`.
        flags: More options of the link.
        prints: What the program prints, or the message if it does not link.
        before: Shell commands that run before, with $CC, the stock or our clang.
        name: The name of the output.
    """

    sources: dict[str, str]
    prints: str
    flags: tuple[str, ...] = ()
    before: str = ""
    name: str = "program"

    def build(self, root: Path, directory: Path, *more: str) -> subprocess.CompletedProcess[str]:
        """Compile and link with the toolchain in `root`; return what the link did."""
        directory.mkdir()
        for name, text in self.sources.items():
            (directory / name).write_text(text)
        clang = str(root / "clang")
        if self.before:
            subprocess.run(
                ["sh", "-ec", self.before], cwd=directory, check=True, env={"CC": clang, "PATH": "/usr/bin:/bin"}
            )
        inputs = []
        for name in self.sources:
            level = OF_FILE.get(name.split(".")[0].rstrip("0123456789"), [])
            if name.endswith((".c", ".cc")) and level:
                compiles = [part for part in (*self.flags, *more) if part.startswith(("-f", "-m", "-O"))]
                run(clang, *OPTIONS, *compiles, *level, "-c", name, "-o", f"{name}.o", directory=directory)
                inputs.append(f"{name}.o")
            elif name.endswith((".c", ".cc", ".s")):
                inputs.append(name)
        driver = clang + "++" if any(name.endswith(".cc") for name in self.sources) else clang
        sections = [] if "-r" in self.flags else SECTIONS
        command = [driver, *OPTIONS, *sections, *inputs, *self.flags, *more, "-o", self.name]
        return subprocess.run(command, cwd=directory, capture_output=True, text=True)


def run(*command: str | Path, directory: Path) -> str:
    done = subprocess.run([str(part) for part in command], cwd=directory, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


PROGRAMS = {
    "assembly": Program(
        {
            "main.c": """\
#include <stdio.h>
int from_assembly(int);
int called_back(int x) { return 3 * x; }
int main(void) {
  printf("%d", from_assembly(5));
  return 0;
}
""",
            "part.s": """\
.text
.globl from_assembly
from_assembly:
  incl %edi
  jmp called_back@PLT
.section .note.GNU-stack,"",@progbits
""",
        },
        "18",
    ),
    "native object": Program(
        {
            "main.c": """\
#include <stdio.h>
extern int native(int), table[];
int shared = 4;
int called_back(int x) { return 3 * x + shared; }
int main(void) {
  printf("%d %d %d", native(5), table[1], shared);
  return 0;
}
""",
            "native.c": """\
int called_back(int);
extern int shared;
int table[] = {1, 7};
int native(int x) {
  shared++;
  return called_back(x + 1);
}
""",
        },
        "23 7 5",
    ),
    "archives": Program(
        {
            "main.c": """\
#include <stdio.h>
int native_part(int);
int shift = 2;
int called_back(int x) { return x << shift; }
int main(void) {
  printf("%d", native_part(5));
  return 0;
}
""",
            "archived": """\
// Only the native archive member refers to it.
int from_bitcode(int x) { return x + 100; }
int never(int x) { return x; }
""",
            "archived_native": """\
int called_back(int), from_bitcode(int);
int native_part(int x) { return called_back(x) + from_bitcode(x); }
""",
        },
        "125",
        ("libnative.a", "libbitcode.a"),
        before="$CC -Oz -x c -c archived_native -o n.o; ar cr libnative.a n.o\n"
        "$CC -Oz -flto -x c -c archived -o b.o; llvm-ar-19 cr libbitcode.a b.o",
    ),
    "own memory functions": Program(
        {
            "main.c": """\
#include <stdio.h>
#include <string.h>
struct S {
  int a[40];
} s;
__attribute__((noinline)) void copy(struct S *t) { *t = s; }
int calls;
int main(void) {
  struct S t;
  for (int i = 0; i < 40; ++i) s.a[i] = i;
  copy(&t);
  memset(s.a, 0, sizeof s.a);
  printf("%d %d", t.a[39], s.a[39]);
  return calls == 0;
}
""",
            "memory.c": """\
extern int calls;
void *memcpy(void *to, const void *from, unsigned long n) {
  char *t = to;
  const char *f = from;
  ++calls;
  while (n--) *t++ = *f++;
  return to;
}
void *memset(void *to, int c, unsigned long n) {
  char *t = to;
  ++calls;
  while (n--) *t++ = c;
  return to;
}
""",
        },
        "39 0",
        ("-fno-builtin",),
    ),
    "wrapped functions": Program(
        {
            "main.c": """\
#include <stdio.h>
int work(int), __real_work(int);
int __wrap_work(int x) { return 10 * __real_work(x); }
int main(void) {
  printf("%d", work(3));
  return 0;
}
""",
            "work.c": "int work(int x) { return x + 1; }\n",
        },
        "40",
        ("-Wl,--wrap=work",),
    ),
    "symbols of the linker": Program(
        {
            "main.c": """\
#include <stdio.h>
#define ENTRY(n, v) __attribute__((used, retain, section("entries"))) static const int n = v;
ENTRY(a, 3)
ENTRY(b, 4)
extern const int __start_entries[], __stop_entries[];
extern const char in_script[], placed_begin[], placed_end[];
__attribute__((used, section("in_fragment"))) static int placed[6] = {1};
int defined(int x) { return x + 1; }
int by_defsym(int);
int main(void) {
  int sum = 0;
  for (const int *p = __start_entries; p < __stop_entries; ++p) sum += *p;
  printf("%d %d %d %d", sum, by_defsym(4), (int)(long)in_script, (int)(placed_end - placed_begin));
  return 0;
}
""",
            "fragment.ld": """\
SECTIONS { .placed : { placed_begin = .; KEEP(*(in_fragment)) placed_end = .; } } INSERT AFTER .rodata;
in_script = 0x51;
""",
        },
        "7 5 81 24",
        ("-Wl,--defsym=by_defsym=defined", "-Wl,-T,fragment.ld", "-no-pie"),
    ),
    "exported functions": Program(
        {
            "main.c": """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int first(int x) { return x * 5 + 1; }
int second(int x) { return x * 5 + 1; }
__attribute__((visibility("hidden"))) int hidden(int x) { return x; }
int main(void) {
  int (*a)(int) = dlsym(RTLD_DEFAULT, "first"), (*b)(int) = dlsym(RTLD_DEFAULT, "second");
  printf("%d %d %d %d", a(2), b(3), a != b, dlsym(RTLD_DEFAULT, "hidden") == 0);
  return 0;
}
"""
        },
        "11 16 1 1",
        ("-Wl,--export-dynamic",),
    ),
    "dynamic list": Program(
        {
            "main.c": """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int listed(int x) { return x * 5 + 1; }
int other(int x) { return x * 5 + 1; }
int main(void) {
  int (*a)(int) = dlsym(RTLD_DEFAULT, "listed");
  printf("%d %d", a(2), dlsym(RTLD_DEFAULT, "other") == 0);
  return 0;
}
""",
            "list": "{ listed; };\n",
        },
        "11 1",
        ("-Wl,--dynamic-list=list",),
    ),
    "asm that names symbols": Program(
        {
            "main.c": """\
#include <stdio.h>
int from_asm(int), from_second(int);
static int referenced(int x) { return 4 * x; }
int main(void) {
  int result, argument = 5;
  asm volatile("call %P2"
               : "=a"(result), "+D"(argument)
               : "i"(referenced)
               : "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
  printf("%d %d %d", from_asm(1), result, from_second(1));
  return 0;
}
""",
            "first.c": """\
__attribute__((used)) static int local(int x) { return x + 2; }
__attribute__((used)) static int number = 30;
asm(".text\\n.globl from_asm\\nfrom_asm:\\n  call local\\n  addl number(%rip), %eax\\n  ret\\n");
""",
            "second.c": """\
__attribute__((used)) static int second_local(int x) { return 7 * x; }
asm(".text\\n.globl from_second\\nfrom_second:\\n  jmp second_local\\n");
""",
        },
        "33 20 7",
        ("-mno-red-zone",),
    ),
    "attributes": Program(
        {
            "main.c": """\
#include <stdio.h>
static int order;
__attribute__((constructor(102))) static void later(void) { order = 10 * order + 2; }
__attribute__((constructor(101))) static void early(void) { order = 10 * order + 1; }
__attribute__((destructor)) static void last(void) {
  printf(" end");
  fflush(stdout);
}
int target(int x) { return x + 3; }
int renamed(int) __attribute__((alias("target")));
__attribute__((weak)) int overridden(int x) { return -1; }
__attribute__((weak)) int missing(int);
__attribute__((weak)) int kept(int x) { return x + 3; }
static int fast(int x) { return x * 2; }
static int (*resolve(void))(int) { return fast; }
int chosen(int) __attribute__((ifunc("resolve")));
__attribute__((naked)) int bare(int x) { asm("leal 1(%rdi), %eax\\nret"); }
__attribute__((naked)) int bare_too(int x) { asm("leal 1(%rdi), %eax\\nret"); }
__attribute__((noinline, section("elsewhere"))) int placed(int x) { return x * 9; }
__attribute__((retain, used, section("unused"))) static int retained = 1;
int main(void) {
  int (*volatile a)(int) = bare, (*volatile b)(int) = bare_too;
  printf("%d %d %d %d %d %d %d %d %d", order, renamed(1), overridden(1), missing != 0, kept(1), chosen(4),
         bare(5) + bare_too(6), a != b, placed(1));
  return 0;
}
""",
            "strong.c": "int overridden(int x) { return x + 8; }\n",
        },
        "12 4 9 0 4 8 13 1 9 end",
        ("-Wl,-z,start-stop-gc",),
    ),
    "pointers to functions that are chosen at run time": Program(
        {
            "main.c": """\
#include <stdio.h>
static int thrice(int x) { return x * 3; }
static int (*resolve(void))(int) { return thrice; }
int chosen(int x) __attribute__((ifunc("resolve")));
int main(int argc, char **argv) {
  int (*volatile p)(int) = chosen;
  printf("%d %d", chosen(argc), p(argc + 1));
  return 0;
}
"""
        },
        "3 6",
    ),
    "common symbols": Program(
        {
            "main.c": """\
#include <stdio.h>
__attribute__((common)) int counter;
__attribute__((common)) long long wide[4];
int add(int), native(int);
int main(void) {
  counter = 1;
  add(2);
  native(3);
  printf("%d %lld %d", counter, wide[0], (int)((long)wide % 16));
  return 0;
}
""",
            "add.c": """\
__attribute__((common)) int counter;
__attribute__((common)) _Alignas(16) long long wide[2];
int add(int x) {
  wide[0] = x;
  return counter += x;
}
""",
            "native.c": """\
__attribute__((common)) int counter;
int native(int x) { return counter += x; }
""",
        },
        "6 2 0",
    ),
    "thread-local variables": Program(
        {
            "main.c": """\
#include <pthread.h>
#include <stdio.h>
__thread int mine = 5;
extern __thread int theirs;
static __thread char buffer[40];
int native(int);
void *work(void *x) {
  mine += 100;
  theirs += native(1);
  buffer[1] = 7;
  return (void *)(long)(mine + theirs + buffer[0]);
}
int main(void) {
  pthread_t t;
  void *result;
  pthread_create(&t, 0, work, 0);
  pthread_join(t, &result);
  printf("%d %d %d %d", (int)(long)result, mine, theirs, buffer[1]);
  return 0;
}
""",
            "part.c": "__thread int theirs = 3;\n",
            "native.c": """\
extern __thread int mine;
int native(int x) { return x + mine; }
""",
        },
        "214 5 3 0",
        ("-pthread",),
    ),
    "long jumps": Program(
        {
            "main.c": """\
#include <setjmp.h>
#include <stdio.h>
static jmp_buf jump;
int fail(int);
#define TRY(n) \\
  __attribute__((noinline)) int try##n(int x) { \\
    volatile int kept = x + n; \\
    if (setjmp(jump)) return kept + 1000; \\
    kept += fail(x); \\
    kept += fail(x + 1); \\
    return kept; \\
  }
TRY(0) TRY(1) TRY(2)
__attribute__((noinline)) int fail(int x) {
  if (x > 5) longjmp(jump, x);
  return x;
}
int main(void) {
  printf("%d %d %d %d", try0(1), try1(5), try2(9), try0(9));
  return 0;
}
"""
        },
        "4 1011 1011 1009",
    ),
    "levels": Program(
        {
            "main.c": """\
#include <stdio.h>
int sum(const int *, int), small(int);
int main(void) {
  int a[] = {1, 2, 3, 4, 5};
  printf("%d %d", sum(a, 5), small(6));
  return 0;
}
""",
            "small.c": """\
static int twice(int x) { return 2 * x; }
int small(int x) { return twice(x) + twice(x + 1); }
""",
            "speed.c": """\
int small(int);
int sum(const int *p, int n) {
  int s = small(1);
  for (int i = 0; i < n; ++i) s += p[i] * p[i];
  return s;
}
""",
            "speed2.c": "int unused(int x) { return x; }\n",
        },
        "61 26",
    ),
    "functions that differ in what they catch": Program(
        {
            "main.cc": """\
#include <cstdio>
struct A {
  int a;
};
struct B {
  int a;
};
template <class T> __attribute__((noinline)) void fling(int x) {
  if (x > 2) throw T{x};
  std::printf("%d ", x);
}
template <class T> __attribute__((noinline)) int guard(int x) {
  try {
    fling<A>(x);
    fling<B>(x - 1);
  } catch (const T &t) { return t.a; }
  return 0;
}
int main() {
  int caught = 0;
  try {
    caught += 100 * guard<A>(3);
    caught += 10 * guard<B>(2);
    guard<A>(2);
    guard<B>(5);
  } catch (const A &a) { caught += a.a; } catch (const B &b) {
    caught += 7000;
  }
  std::printf("%d", caught);
}
"""
        },
        "2 1 2 1 305",
    ),
    "compared functions and types": Program(
        {
            "main.cc": """\
#include <cstdio>
#include <typeinfo>
struct Base {
  virtual int get() { return 1; }
  virtual ~Base() {}
};
struct Left : Base {
  int get() override { return 2; }
};
struct Right : Base {
  int get() override { return 2; }
};
template <int N> int tag() { return 5; }
using Function = int (*)();
Function table[] = {tag<1>, tag<2>, tag<3>};
int find(Function f) {
  for (int i = 0; i < 3; ++i)
    if (table[i] == f) return i;
  return -1;
}
template <int N> int count() {
  static int calls;
  return ++calls;
}
__attribute__((noinline)) Base *make(int n) {
  if (n) return new Left;
  return new Right;
}
int main(int n, char **) {
  Base *l = make(n), *r = make(n - 1);
  int (Base::*volatile method)() = &Base::get;
  count<1>();
  count<1>();
  std::printf("%d %d %d %d %d %d %d %d", find(tag<1>), find(tag<2>), find(tag<3>), typeid(*l) == typeid(*r),
              dynamic_cast<Left *>(r) != nullptr, dynamic_cast<Right *>(r) != nullptr, (l->*method)(), count<2>());
}
"""
        },
        "0 1 2 0 0 1 2 1",
    ),
    "static": Program(
        {
            "main.c": """\
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int order(const void *a, const void *b) { return *(char *)a - *(char *)b; }
int main(void) {
  char text[] = "linker";
  qsort(text, strlen(text), 1, order);
  printf("%s", text);
  return 0;
}
"""
        },
        "eiklnr",
        ("-static",),
    ),
}
