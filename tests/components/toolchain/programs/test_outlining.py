"""The machine outliner of the release clang: smaller code that does and unwinds the same."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from components.core.compiler.objects.elf import Elf

pytestmark = pytest.mark.toolchain

NO_TABLES = ("-fno-asynchronous-unwind-tables", "-fno-exceptions")

WORK = """
#include <cstring>
#include <stdexcept>
struct Guard { int &n; Guard(int &n) : n(n) { ++n; } ~Guard() { --n; } };
struct Four { long a, b, c, d; };
int depth, total;
__attribute__((noinline)) void check(int x, const char *why, int y, long z) {
  total += y + z;
  if (x % 7 == 3) throw std::runtime_error(why);
  if (x % 11 == 5) throw x;
}
__attribute__((noinline)) void fill(Four *p, int x) { p->a = x; p->b = x * 3; p->c = x ^ 5; p->d = ~x; }
// Sequences with calls, addresses of the stack and ends of frames; a throw passes through each kind.
#define F(N) \\
  __attribute__((noinline)) int f##N(int x, Four *q) { \\
    Guard guard(depth); \\
    int kept[8]; \\
    memset(kept, x, sizeof kept); \\
    Four p; \\
    fill(&p, x); \\
    try { \\
      check(x + N, "first", 12345, 77); \\
      q->a = p.b + 5; q->b = p.c * 7; q->c = p.d ^ 123456; q->d = p.a; \\
      check(x * N, "second", 54321, 99); \\
      kept[x & 7] = N; \\
    } catch (const std::runtime_error &e) { \\
      total += strlen(e.what()); \\
      check(x + 2 * N, "nested", 12345, 77); \\
      return kept[1] - 1; \\
    } \\
    check(x + 3 * N, "third", 12345, 77); \\
    q->a = p.b + 5; q->b = p.c * 7; q->c = p.d ^ 123456; q->d = p.a; \\
    return kept[x & 7] + (int)q->c; \\
  }
F(1) F(2) F(3) F(4) F(5) F(6)
#define G(N) \\
  __attribute__((noinline)) int g##N(int x, Four *q) noexcept { \\
    Guard guard(depth); \\
    try { check(x + N, "first", 12345, 77); return f##N(x, q); } catch (...) { return -N; } \\
  }
G(1) G(2) G(3)
int work(int rounds) {
  Four q = {1, 2, 3, 4};
  int (*functions[])(int, Four *) = {f1, f2, f3, f4, f5, f6, g1, g2, g3};
  unsigned sum = 0;
  for (int i = 0; i < rounds; ++i)
    try { sum = sum * 31 + functions[i % 9](i / 3, &q) + q.a + q.d; }
    catch (const std::exception &e) { sum += 1000 + strlen(e.what()); }
    catch (int x) { sum ^= x; }
  return sum + total + depth;
}
"""
RUN = """
#include <cstdio>
int work(int);
int main() { std::printf("%d", work(3000)); }
"""
STEP = """
// Executes work() instruction by instruction, and finds main() and its register from each one of this program.
#include <csignal>
#include <cstdio>
#include <ucontext.h>
#include <unwind.h>
int work(int);
int main();
extern "C" char __executable_start, etext;
static unsigned long steps, lost, expected;
static bool found;
static _Unwind_Reason_Code visit(_Unwind_Context *context, void *) {
  if (_Unwind_FindEnclosingFunction((void *)_Unwind_GetIP(context)) != (void *)main) return _URC_NO_REASON;
  found = _Unwind_GetGR(context, 3) == 0x1234567;  // rbx
  return _URC_END_OF_STACK;
}
static void on_step(int, siginfo_t *, void *context) {
  char *pc = (char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
  if (pc < &__executable_start || pc >= &etext) return;
  found = false;
  _Unwind_Backtrace(visit, nullptr);
  ++steps;
  lost += !found;
}
int main() {
  struct sigaction action = {};
  action.sa_sigaction = on_step;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGTRAP, &action, nullptr);
  work(1);  // Lets the dynamic loader bind everything.
  int result;
  asm volatile(
      "movq $0x1234567, %%rbx; movl $9, %%edi; pushfq; orq $0x100, (%%rsp); popfq; call _Z4worki;"
      "pushfq; andq $~0x100, (%%rsp); popfq"
      : "=a"(result) : : "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory", "cc");
  std::printf("%lu %lu", steps, lost);
}
"""


def compile_object(clang: Path, source: str, output: Path, *flags: str) -> Path:
    """Compile C++ at -Oz and return the object."""
    command: list[str | Path] = [clang, "-Oz", *flags, "-x", "c++", "-", "-c", "-o", output]
    subprocess.run(command, input=source, text=True, check=True)
    return output


def outlined(path: Path) -> int:
    """Return the number of outlined functions in an object."""
    names = subprocess.run(["/usr/lib/llvm-19/bin/llvm-nm", path], capture_output=True, text=True, check=True).stdout
    return names.count("OUTLINED_FUNCTION")


def run(objects: list[Path], *flags: str) -> str:
    """Link a program and return its output."""
    program = objects[0].with_suffix("")
    subprocess.run(["/usr/lib/llvm-19/bin/clang++", *flags, *objects, "-o", program], check=True)
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def clang(release_toolchain: Path) -> Path:
    return release_toolchain / "bin" / "clang"


@pytest.mark.parametrize(
    "flags",
    [
        (),
        ("-fno-asynchronous-unwind-tables",),
        ("-fno-omit-frame-pointer", "-mno-red-zone", "-ffunction-sections"),
        ("-mavx2", "-fno-plt", "-fPIC", "-g"),
    ],
    ids=["default", "no-unwind-tables", "frame-pointer", "no-plt"],
)
def test_outlined_code_is_smaller_and_throws_the_same(clang: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    results = {}
    for outline in "01":
        work = compile_object(clang, WORK, tmp_path / f"work{outline}.o", *flags, "-mllvm", f"-mlgo-outline={outline}")
        main = compile_object(clang, RUN, tmp_path / "main.o")
        results[outline] = run([work, main]), Elf(work.read_bytes()).text_size(), outlined(work)
    assert results["0"][0] == results["1"][0]
    assert results["1"][1] < 0.9 * results["0"][1]
    assert (results["0"][2], results["1"][2] > 3) == (0, True)


def test_every_instruction_of_outlined_code_can_be_unwound(clang: Path, tmp_path: Path) -> None:
    work = compile_object(clang, WORK, tmp_path / "work.o")
    steps, lost = run([work, compile_object(clang, STEP, tmp_path / "step.o")], "-no-pie").split()
    assert outlined(work) > 3
    assert int(steps) > 500
    assert int(lost) == 0


def test_only_size_optimized_functions_of_the_release_clang_are_outlined(
    clang: Path, training_toolchain: Path, tmp_path: Path
) -> None:
    training = training_toolchain / "bin" / "clang"
    on, off = ("-mllvm", "-mlgo-outline=1"), ("-mllvm", "-mlgo-outline=0")
    compiled = {
        name: compile_object(compiler, WORK, tmp_path / f"{name}.o", *flags).read_bytes()
        for name, compiler, flags in (
            ("release", clang, ()),
            ("training-on", training, on),
            ("training", training, ()),
            ("release-off", clang, off),
            ("release-O2", clang, ("-O2",)),
            ("release-O2-off", clang, ("-O2", *off)),
            ("release-Os", clang, ("-Os",)),
            ("release-Os-off", clang, ("-Os", *off)),
            ("never", clang, ("-mllvm", "-enable-machine-outliner=never")),
        )
    }
    assert compiled["release"] == compiled["training-on"] != compiled["training"]
    assert compiled["training"] == compiled["release-off"] == compiled["never"]
    assert compiled["release-O2"] == compiled["release-O2-off"]
    assert compiled["release-Os"] == compiled["release-Os-off"]


def test_loops_are_outlined_from_on_request_only(clang: Path, tmp_path: Path) -> None:
    body = "p->a = q->b * 3; p->b = q->c ^ 5; p->c = q->d + 123; p->d = q->a - 45; q->b = p->c * 11;"
    source = "struct Four { long a, b, c, d; };\n" + "".join(
        f"void f{n}(Four *p, Four *q, int n, long *end) {{ do {{ {body} end[{n}] = n * {n + 3}; }} while (--n); }}\n"
        for n in range(6)
    )
    assert outlined(compile_object(clang, source, tmp_path / "cold.o")) == 0
    everywhere = compile_object(clang, source, tmp_path / "all.o", "-mllvm", "-mlgo-outline-everywhere")
    assert outlined(everywhere) > 0


def test_debug_data_does_not_change_the_code(clang: Path, tmp_path: Path) -> None:
    functions = [
        f"int f{count}(int a, int b, int c, int d, int e) {{\n"
        + "".join(f"  int v{i} = g(a + {i}, b); b ^= v{i} * c;\n" for i in range(count))
        + f"  return a + b + c + d + e + {count};\n}}\n"
        for count in range(6, 30)
    ]
    source = "int g(int, int);\n" + "".join(functions)
    plain = compile_object(clang, source, tmp_path / "plain.o")
    debug = compile_object(clang, source, tmp_path / "debug.o", "-g")
    assert Elf(plain.read_bytes()).section(".text") == Elf(debug.read_bytes()).section(".text")


@pytest.mark.parametrize(
    "flags",
    [(), NO_TABLES, (*NO_TABLES, "-mllvm", "-mlgo-outline-everywhere")],
    ids=["default", "no-tables", "everywhere"],
)
def test_debug_data_does_not_change_the_order_of_outlined_functions(
    clang: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """Many functions of eight kinds have sequences that save the same."""
    source = "int g(int, int); void h(long *);\nstruct P { long a, b, c, d; struct P *next; };\n" + "".join(
        f"""int f{i}(struct P *p, long *v, int x) {{
          int sum = {i};
          for (long *s = v; *s; ++s) {{
            int size = *s;
            if (size > {i % 8 + 3}) {{ h(s); sum += size ^ g(x, size); }} else break;
          }}
          long a = p->a * {i % 8 + 3}, b = p->b ^ {i % 8 * 7 + 1};
          p->a = b; p->b = a + {i % 8}; p->c = p->d - a; p->next->d = b * {i % 8 + 5};
          if (x > {i % 8}) {{ long t[4] = {{x, a, {i % 8}, b}}; h(t); v[{i % 8}] = t[2] + t[1]; }}
          return sum + g(p->c, x);
        }}\n"""
        for i in range(80)
    )
    objects = [tmp_path / "plain.o", tmp_path / "debug.o"]
    for path, debug in zip(objects, ((), ("-g",)), strict=True):
        compile_object(clang, source, path, *flags, *debug)
    assert outlined(objects[0]) > 3
    plain, debugged = (Elf(path.read_bytes()).section(".text") for path in objects)
    assert plain == debugged


DUPLICATES = """
struct D { int *p; D(int); ~D(); };
void use(D &, int, int, int);
int look(const char *, int, int);
int plain(int, int, int, const void *), other(int, int, int, const void *);
// A landing pad: lld folds none of the instances. Else it folds them, if their callees are the same or fold, too.
template <class T> T thrower(T x) {
  D d(1234567); use(d, 111111, 222222, 333333); use(d, 444444, 555555, 666666); use(d, 111, 222, 333);
  return x ? x : (T)0 + look("a", 444444, 555555);
}
template <class T> int leaf(T x) {
  int a = plain(111111, 222222, 333333, x) ^ plain(444444, 555555, 666666, x);
  return a * plain(111111, a, 333333, x) - plain(444444, 555555, a, x);
}
template <class T> int caller(T x) {
  int a = leaf<T>(x) ^ plain(444444, 55555, 666666, x);
  return a * leaf<T>(x) - plain(444444, 55555, a, x) + plain(44444, 55555, 66666, x);
}
struct A {}; struct B {}; struct C {}; struct E {};
#define INSTANCES(T) template T *thrower(T *); template int leaf(T *); template int caller(T *);
INSTANCES(A) INSTANCES(B) INSTANCES(C) INSTANCES(E) INSTANCES(int) INSTANCES(long)
"""


def test_kind_of_output_does_not_change_the_code(clang: Path, tmp_path: Path) -> None:
    """Only assembly has names for labels."""
    heuristic = "--no-default-config"
    direct = compile_object(clang, DUPLICATES, tmp_path / "direct.o", heuristic)
    assembly = compile_object(clang, DUPLICATES, tmp_path / "assembly.s", heuristic, "-S")
    subprocess.run([clang, "-c", assembly, "-o", tmp_path / "assembled.o"], check=True)
    (tmp_path / "work.cpp").write_text(DUPLICATES)
    command: list[str | Path] = [clang, "-Oz", heuristic, "-save-temps=obj", "-c", "work.cpp", "-o", "saved.o"]
    subprocess.run(command, cwd=tmp_path, check=True)
    codes = []
    for path in (direct, tmp_path / "assembled.o", tmp_path / "saved.o"):
        command = ["/usr/lib/llvm-19/bin/llvm-objdump", "-dr", "--no-show-raw-insn", path]
        codes.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n", 3)[3])
    assert codes[0] == codes[1] == codes[2]
    functions = assembly.read_text().split("# -- Begin function ")
    calls = [part.split()[0] for part in functions if "callq\tOUTLINED_FUNCTION" in part]
    assert len(calls) == 6
    assert all("thrower" in name for name in calls)


def test_hot_functions_and_named_sections_are_not_outlined(clang: Path, tmp_path: Path) -> None:
    for attribute in ("hot", 'section(".text.mine")'):
        source = WORK.replace("noinline", f"noinline, {attribute}")
        work = compile_object(clang, source, tmp_path / "work.o")
        assert outlined(work) == 0


@pytest.mark.parametrize("icf", ["none", "all"])
def test_full_lto_outlines_from_linkonce_functions(release_toolchain: Path, tmp_path: Path, icf: str) -> None:
    source = WORK.replace("__attribute__((noinline)) int f", "__attribute__((noinline)) inline int f")
    (tmp_path / "work.cpp").write_text(source)
    (tmp_path / "main.cpp").write_text(RUN)
    results = {}
    for outline in "01":
        program = tmp_path / f"program{outline}"
        command: list[str | Path] = [release_toolchain / "bin" / "clang++", "-Oz", "-flto", "-fuse-ld=lld"]
        options = [f"-Wl,--icf={icf}", f"-Wl,-mllvm,-mlgo-outline={outline}"]
        subprocess.run([*command, *options, "work.cpp", "main.cpp", "-o", program], cwd=tmp_path, check=True)
        output = subprocess.run([program], capture_output=True, text=True, check=True).stdout
        results[outline] = output, Elf(program.read_bytes()).text_size()
    assert results["0"][0] == results["1"][0]
    assert results["1"][1] < 0.95 * results["0"][1]


HARDENED = """
struct s { int a, b, c, d; int (*f)(struct s *, int, int, int); };
int add(struct s *p, int a, int b, int c) { return p->b + a * b + c; }
#define F(n) __attribute__((noinline)) int hardened##n(struct s *p, int x) { \\
  int r = p->f(p, x, 1234567, 7654321); \\
  p->a = x * 3; p->b = p->c ^ 54321; p->c = p->d + 123456; p->d = p->a - 45678; r += p->f(p, p->b, n, 7); \\
  return r + n; }
F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8)
int hardened(int x) {
  struct s s = {1, 2, 3, 4, add};
  return hardened1(&s, x) + hardened2(&s, x) + hardened3(&s, x) + hardened4(&s, x) + hardened5(&s, x)
    + hardened6(&s, x) + hardened7(&s, x) + hardened8(&s, x);
}
"""
PLAIN = """
int printf(const char *, ...);
int hardened(int);
#define F(n) __attribute__((noinline)) int plain##n(int *p, int x) { \\
  p[0] = x * 3; p[1] = p[2] ^ 54321; p[2] = p[3] + 123456; p[3] = p[0] - 45678; p[4] = p[1] ^ p[3]; \\
  return hardened(p[n]) ^ n * x; }
F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8)
int main(int argc, char **argv) {
  int p[9] = {1, 2, 3, 4, 5, 6, 7, 8, argc};
  int r = plain1(p, 1) + plain2(p, 2) + plain3(p, 3) + plain4(p, 4) + plain5(p, 5) + plain6(p, 6) + plain7(p, 7)
    + plain8(p, 8) + hardened(argc);
  printf("%d %d\\n", r, p[4]);
}
"""


@pytest.mark.parametrize("hardening", ["-mretpoline", "-mlvi-hardening", "-mseses"])
def test_hardened_functions_are_not_outlined_from(release_toolchain: Path, tmp_path: Path, hardening: str) -> None:
    """The request of a module for the outliner reaches no other module of a link."""
    clang = release_toolchain / "bin" / "clang"
    sources = {"hardened": HARDENED, "plain": PLAIN}
    for name, source in sources.items():
        (tmp_path / f"{name}.c").write_text(source)

    def link(name: str, *options: str) -> tuple[str, bytes]:
        subprocess.run([clang, *options, "-o", name], cwd=tmp_path, check=True)
        done = subprocess.run([tmp_path / name], capture_output=True, text=True, check=True)
        return done.stdout, (tmp_path / name).read_bytes()

    expected, _ = link("reference", "-O0", "plain.c", "hardened.c")
    for lto, options in {
        "thin": [["--thinlto-jobs=1"], ["--thinlto-jobs=8"], *[["--thinlto-jobs=2", "--thinlto-cache-dir=cache"]] * 2],
        "full": [["--lto-partitions=4"], [], ["--threads=8"]],
    }.items():
        for name in sources:
            flags = [hardening] if name == "hardened" else []
            command: list[str | Path] = [clang, "-Oz", f"-flto={lto}", *flags, "-c", f"{name}.c", "-o", f"{name}.o"]
            subprocess.run(command, cwd=tmp_path, check=True)
        for order in (["plain.o", "hardened.o"], ["hardened.o", "plain.o"]):
            programs = []
            for each in options:
                linker = [f"-Wl,{option}" for option in each]
                output, program = link("program", "-Oz", f"-flto={lto}", *order, *linker)
                assert output == expected
                if each != ["--lto-partitions=4"]:
                    programs.append(program)
            assert len(set(programs)) == 1
            disassembler = "/usr/lib/llvm-19/bin/llvm-objdump"
            command = [disassembler, "-d", "--no-show-raw-insn", tmp_path / "program"]
            code = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            functions = {part.partition(">:")[0].rpartition("<")[2]: part for part in code.split("\n\n")}
            calls = {name for name, part in functions.items() if "OUTLINED_FUNCTION" in part.partition(">:")[2]}
            assert any(name.startswith("plain") for name in calls)
            assert not any(name.startswith("hardened") for name in calls)


MODELS = """
int printf(const char *, ...);
int table[64], other[64];
static int hidden[64];
__attribute__((noinline)) int use(int *p, int a, int b) { return p[a & 63] + b; }
#define F(n) __attribute__((noinline)) int f##n(int x) { \\
  int r = use(table, x, 123456) + use(other, x + n, 654321) + use(hidden, x, 111111); \\
  table[3] = x * 3; other[5] = table[7] ^ 54321; hidden[9] = other[1] + 123456; \\
  return r + use(table, r, 123456) + use(other, r + 1, 654321); }
F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8)
int main(void) {
  int r = 0;
  for (int i = 0; i < 64; ++i) { table[i] = i * 7; other[i] = i ^ 21; hidden[i] = i + 3; }
  for (int i = 0; i < 7; ++i) r = r * 31 + f1(i) + f2(i) + f3(i) + f4(i) + f5(i) + f6(i) + f7(i) + f8(i);
  printf("%d", r);
}
"""


@pytest.mark.parametrize("model", ["medium", "large"])
def test_code_models_work(clang: Path, tmp_path: Path, model: str) -> None:
    """In the large model, position-independent code finds the global offset table by a label of its function."""
    (tmp_path / "models.c").write_text(MODELS)

    def build(*flags: str) -> str:
        subprocess.run([clang, *flags, "models.c", "-o", "program"], cwd=tmp_path, check=True)
        return subprocess.run([tmp_path / "program"], capture_output=True, text=True, check=True).stdout

    expected = build("-O0")
    for position in (["-fPIC"], ["-fno-pic", "-no-pie"]):
        assert build("-Oz", f"-mcmodel={model}", *position, "-mllvm", "-mlgo-outline-everywhere") == expected
    assert build("-Oz", "-flto", f"-mcmodel={model}", "-fPIE") == expected


BRANCH_TARGETS = """
void *buffer[5];
void jump(int);
struct s { long a, b, c, d; };
#define F(n) long f##n(struct s *p, long x) { \\
  p->a = x * 3; p->b = p->c ^ 54321; p->c = p->d + 123456; p->d = p->a - 45678; return p->a + p->b + n; }
F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8)
#define G(n) long g##n(struct s *p, long x) { \\
  if (__builtin_setjmp(buffer)) { p->a = x * 3; p->b = p->c ^ 54321; p->c = p->d + 123456; p->d = p->a - 45678; } \\
  jump(n); return p->b; }
G(1) G(2) G(3) G(4)
"""


def test_branch_targets_and_shadow_stacks_stay_in_their_functions(clang: Path, tmp_path: Path) -> None:
    """A processor with CET faults at a function whose first instruction was moved elsewhere."""
    flags = ["-x", "c", "-fcf-protection=full", "-mshstk", "-S"]
    outlined, plain = (
        compile_object(clang, BRANCH_TARGETS, tmp_path / f"{outline}.s", *flags, "-mllvm", f"-mlgo-outline={outline}")
        for outline in "10"
    )
    functions, moved = outlined.read_text().split("OUTLINED_FUNCTION_0:")
    assert functions.count("OUTLINED_FUNCTION") > 8
    for instruction in ("endbr64", "rdsspq"):
        assert instruction not in moved
        assert functions.count(instruction) == plain.read_text().count(instruction) > 0
