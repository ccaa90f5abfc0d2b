"""What one module of a link has is not another's: options, variants and what a cache of ThinLTO holds."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from tests.components.toolchain.programs.linked_programs import run
from tests.components.toolchain.programs.test_linker import toolchain

pytestmark = pytest.mark.toolchain
__all__ = ["toolchain"]

# Loops that machine LICM, loop strength reduction and the elimination of loads improve.
HOT = """\
int sum(const int *a, const int *b, int n, int k) {
  int s = 0;
  for (int i = 0; i < n; ++i) {
    s += a[i * 3] * b[i * 5 + k];
    if (s & 64) s ^= a[i * 3 + 1];
    if (k) s += *b;
  }
  return s;
}
double product(const double *a, long n, long step) {
  double s = 0;
  for (long i = 0; i < n; ++i) {
    s += a[i * step] * 3.25 + a[i * step + 1] * 7.5;
    if (s > 1e9) s -= 123.5;
  }
  return s;
}
"""
MAIN = """\
#include <stdio.h>
int sum(const int *, const int *, int, int), small(int, int);
double product(const double *, long, long);
int thin(int);
static int a[3000], b[6000];
static double d[4000];
int main(int n, char **v) {
  for (int i = 0; i < 3000; ++i) a[i] = i * 7, b[i] = i ^ 5, d[i] = i;
  printf("%d %.1f %d %d", sum(a, b, 900, n), product(d, 900, n), small(n, 3), thin(n));
  return 0;
}
"""
SMALL = """\
static int grow(int x, int y) {
  int s = y;
  while (x --> 0) s = s * 3 + x;
  return s;
}
int small(int x, int y) { return grow(x, y) + grow(y, x) * grow(x + 1, y - 1); }
"""
# Inlined by the policy, called by the heuristic, or the reverse: a module of ThinLTO that is compiled for size.
THIN = """\
#include <stdlib.h>
struct node { struct node *next; int key, value[4]; };
static struct node *table[8];
static struct node **slot(int key) { return &table[(unsigned)(key * 2654435761u) >> 29]; }
static struct node *find(int key) {
  for (struct node *n = *slot(key); n; n = n->next)
    if (n->key == key) return n;
  return 0;
}
static struct node *get(int key) {
  struct node *n = find(key);
  if (n) return n;
  n = calloc(1, sizeof *n);
  n->key = key;
  n->next = *slot(key);
  return *slot(key) = n;
}
static void put(int key, int at, int v) { get(key)->value[at & 3] += v; }
int thin(int x) {
  int s = 0;
  for (int i = 0; i < 40; ++i) put(i * x, i, i + 1), put(i + x, x, i);
  for (int i = 0; i < 40; ++i)
    if (find(i)) s += get(i)->value[i & 3] - get(i + x)->value[1];
  return s;
}
"""
FILES = {"hot": (HOT, "-O2", "-flto=thin"), "main": (MAIN, "-O2", "-fno-lto"), "thin": (THIN, "-Oz", "-flto=thin")}
VARIANTS = {
    "none": [],
    "keep smaller": ["-mlgo-keep-smaller"],
    "others": [
        "-mlgo-experimental",
        "-mlgo-variants=policy+everywhere+ipra:heuristic+no-outline:policy+ir-outliner:heuristic+no-fold",
    ],
}


@pytest.fixture
def objects(toolchain: Path, tmp_path: Path) -> Path:
    directory = tmp_path / "objects"
    directory.mkdir()
    for name, (text, *flags) in {**FILES, "small": (SMALL, "-Oz", "-flto"), "object": (SMALL, "-Oz")}.items():
        (directory / f"{name}.c").write_text(text)
        run(toolchain / "bin" / "clang", *flags, "-c", f"{name}.c", "-o", f"{name}.o", directory=directory)
    return directory


def link(toolchain: Path, objects: Path, output: Path, names: list[str], *options: str) -> bytes:
    inputs = [f"{name}.o" for name in names]
    flags = [f"-Wl,-mllvm,{option}" if option.startswith("-mlgo") else option for option in options]
    command: list[str | Path] = [toolchain / "bin" / "clang", "-O2", "-flto=thin", "-Wl,--build-id=none"]
    command += [*inputs, *flags, "-o", output]
    run(*command, directory=objects)
    return output.read_bytes()


def code(program: Path) -> dict[str, list[str]]:
    """Return the instructions of the functions of ThinLTO's modules, without addresses."""
    options = ["-d", "--no-show-raw-insn", "--no-leading-addr", "--disassemble-symbols=sum,product,thin"]
    text = run("llvm-objdump-19", *options, program, directory=program.parent)
    functions = re.findall(r"^<(\w+)>:\n(.*?)(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    # Behind a function is padding.
    return {name: re.sub(r"0x[0-9a-f]+|<.*?>|#.*|int3|\s", " ", body).split() for name, body in functions}


@pytest.mark.parametrize("variants", VARIANTS)
def test_options_of_a_program_do_not_reach_other_modules(
    toolchain: Path, objects: Path, tmp_path: Path, variants: str
) -> None:
    link(toolchain, objects, tmp_path / "alone", ["main", "hot", "thin", "object"])
    expected = code(tmp_path / "alone")
    assert {*expected} == {"sum", "product", "thin"}
    prints = run(tmp_path / "alone", directory=tmp_path)
    for i, (names, jobs) in enumerate(product((["small", "thin", "hot"], ["hot", "thin", "small"]), ("1", "8"))):
        program = tmp_path / f"program{i}"
        options = [*VARIANTS[variants], f"-Wl,--thinlto-jobs={jobs}"]
        link(toolchain, objects, program, ["main", *names], *options)
        assert code(program) == expected
        assert run(program, directory=tmp_path) == prints


@pytest.mark.parametrize("variants", VARIANTS)
def test_cache_holds_the_same_whichever_link_filled_it(
    toolchain: Path, objects: Path, tmp_path: Path, variants: str
) -> None:
    """A link without a program, one with it, and one with it as variants fill one cache, in two orders."""
    links = {"object": ["object"], "program": ["small"], "variants": ["small"]}

    def build(name: str, *options: str) -> bytes:
        more = VARIANTS[variants] if name == "variants" else []
        return link(toolchain, objects, tmp_path / name, ["main", "hot", "thin", *links[name]], *more, *options)

    without = {name: build(name) for name in links}
    for cache, order in (("forwards", list(links)), ("backwards", list(links)[::-1])):
        for name in (*order, *order):
            assert build(name, f"-Wl,--thinlto-cache-dir={tmp_path / cache}") == without[name], (cache, name)
