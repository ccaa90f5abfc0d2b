"""Provides corpora of real modules, and a clang that fails on modules with certain names."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from components.core.compiler.objects.elf import Elf
from components.core.formats.corpus import Corpus, Module, load_corpus, write_description
from components.platform.storage.manifest import write_manifest
from components.platform.storage.uri import mirror

SOURCES = {
    "app/leaf.c": "int leaf(int x) { return x * 3 + 1; }\n",
    "app/tree.c": (
        "extern int put(int);\n"
        "static int small(int x) { return x * 3 + 1; }\n"
        "static int big(int x) { for (int i = 0; i < x; ++i) put(small(i) + small(x)); return small(x); }\n"
        "int root(int y) { return big(y) + big(y + 1) + small(y); }\n"
        "int other(int y) { return big(y * 2) - small(7); }\n"
    ),
    "lib/strings.cpp": (
        "#include <map>\n#include <string>\n#include <vector>\n"
        "static std::map<std::string, std::vector<int>> store;\n"
        "void add(const std::string &key, int value) { store[key].push_back(value); }\n"
        "int sum(const std::string &key) { int s = 0; for (int v : store[key]) s += v; return s; }\n"
    ),
}


@pytest.fixture(scope="session")
def sources() -> dict[str, str]:
    """The sources of the modules of `tiny_corpus`, by path."""
    return SOURCES


@pytest.fixture(scope="session")
def clang() -> Path:
    """The clang that compiles the tests' sources."""
    program = shutil.which("clang-19")
    assert program, "install clang-19"
    return Path(program)


@pytest.fixture(scope="session")
def make_corpus(clang: Path) -> Callable[[Path, dict[str, str]], Corpus]:
    """A function that compiles sources (by path) at -Oz with embedded bitcode into a corpus with a manifest."""

    def make(directory: Path, sources: dict[str, str]) -> Corpus:
        directory.mkdir(parents=True, exist_ok=True)
        build = directory / "build"
        for name, text in sources.items():
            source, output = build / name, build / f"{name}.o"
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(text)
            command: list[str | Path] = [clang, "-Oz", "-Xclang", "-fembed-bitcode=all", "-c", name]
            command += ["-o", f"{name}.o", "-MD", "-MF", "d"]
            subprocess.run(command, cwd=build, check=True)
            elf = Elf(output.read_bytes())
            for section, suffix in ((".llvmbc", "bc"), (".llvmcmd", "cmd")):
                contents = elf.section(section)
                assert contents is not None
                target = directory / f"{name}.o.{suffix}"
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(contents)
        shutil.rmtree(build)
        write_description(directory, [f"{name}.o" for name in sources])
        write_manifest(directory)
        return load_corpus(directory)

    return make


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory: pytest.TempPathFactory, make_corpus: Callable[..., Corpus]) -> Corpus:
    """Three modules of two projects: app/leaf.c.o, which has no inlining decision, app/tree.c.o, lib/strings.cpp.o."""
    return make_corpus(tmp_path_factory.mktemp("tiny") / "corpus", SOURCES)


def module_called(corpus: Corpus, name: str) -> Module:
    return next(module for module in corpus if name in module.name)


@pytest.fixture
def fragile_clang(clang: Path, tmp_path: Path) -> Iterator[Path]:
    """A clang with faults that depend on its arguments, the module's path included.

    With *crash* it dies of a signal, with *hang* it starts a child and waits forever, with *flaky* it fails the first
    time, with *full* its disk is full. The name of the test is part of the path.
    """
    # Compiles can write only to their scratch directory, so the first *flaky* one takes a token instead.
    tokens = tmp_path / "tokens"
    os.mkfifo(tokens)
    held = os.open(tokens, os.O_RDWR)
    os.write(held, b"!")
    script = tmp_path / "fragile-clang"
    script.write_text(
        f"""#!/bin/sh
case "$*" in
  *crash*) echo "error: about to crash" >&2; kill -SEGV $$ ;;
  *hang*) sleep 3600 & wait ;;
  *flaky*) if dd if={tokens} of=/dev/null bs=1 count=1 iflag=nonblock 2>/dev/null; then
    echo "error: bad day" >&2; exit 1; fi ;;
  *full*) exec {clang} "$@" -o /dev/full ;;
esac
exec {clang} "$@"
"""
    )
    script.chmod(0o755)
    yield script
    os.close(held)


@pytest.fixture(params=["path", "gs", "s3"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The directory of a training or search: one of this machine, and the mirror of one in each kind of bucket."""
    kind = request.param
    directory = tmp_path / "root" if kind == "path" else mirror(request.getfixturevalue(f"{kind}_uri"))
    directory.mkdir(parents=True)
    return directory


@pytest.fixture
def fresh_gin() -> Iterator[None]:
    """Clear gin's bindings before and after a test."""
    import gin

    gin.clear_config()
    yield
    gin.clear_config()


@pytest.fixture
def marker(tmp_path: Path) -> Iterator[str]:
    """A word for the command lines of a test's processes, by which `living` finds them; none may remain at the end."""
    word = f"marker-{os.getpid()}-{tmp_path.name}"
    yield word
    assert living(word) == []


def living(word: str) -> list[int]:
    """Return the ids of the processes with `word` in their command line, except zombies and killed ones."""
    processes = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and word.encode() in (entry / "cmdline").read_bytes():
                pending = re.findall(r"^(?:SigPnd|ShdPnd):\s*(\w+)", (entry / "status").read_text(), re.MULTILINE)
                # On a busy machine a process with a pending SIGKILL lives until it is scheduled.
                if not any(int(signals, 16) >> (signal.SIGKILL - 1) & 1 for signals in pending):
                    processes.append(int(entry.name))
        except OSError:
            continue  # the process has ended in the meantime
    return processes


PRESSED = {
    # Loops with more live values than registers; a function without register pressure; calls, which clobber registers.
    "app/pressed.c": """\
extern int ask(int);
void mix(const int *in, int *out, int n) {
  int a = in[0], b = in[1], c = in[2], d = in[3], e = in[4], f = in[5], g = in[6], h = in[7], i = in[8], j = in[9];
  int k = in[10], l = in[11], m = in[12], o = in[13], p = in[14], q = in[15], r = in[16], s = in[17];
  for (int x = 0; x < n; ++x) {
    a += b * c, b ^= d + e, c -= f * g, d += h ^ i, e *= j + k, f += l * m, g -= o ^ p, h += q * r, i ^= s + a;
    j += b * x, k -= c, l ^= d * x, m += e, o *= f, p ^= g + x, q += h, r -= i * x, s ^= j;
  }
  out[0] = a, out[1] = b, out[2] = c, out[3] = d, out[4] = e, out[5] = f, out[6] = g, out[7] = h, out[8] = i;
  out[9] = j, out[10] = k, out[11] = l, out[12] = m, out[13] = o, out[14] = p, out[15] = q, out[16] = r, out[17] = s;
}
int calm(int x) { return x + 1; }
int calls(int a, int b, int c, int d, int e, int f) {
  int total = 0;
  for (int x = a; x < b; ++x)
    for (int y = c; y < d; ++y)
      total += ask(x) * e + ask(y) * f + ask(x * y) * (a + b) - ask(total) * (c + d) + (e ^ f) * (a - d);
  return total;
}
""",
    "app/leaf.c": "int leaf(int x) { return x * 3 + 1; }\n",
    "lib/doubles.cpp": """\
double fold(const double *p, int n) {
  double a = p[0], b = p[1], c = p[2], d = p[3], e = p[4], f = p[5], g = p[6], h = p[7], i = p[8], j = p[9], k = p[10];
  double l = p[11], m = p[12], o = p[13], q = p[14], r = p[15], s = p[16], t = p[17], u = p[18], v = p[19];
  for (int x = 20; x < n; ++x) {
    a += p[x] * b, b -= a * c, c += b * d, d -= c * e, e += d * f, f -= e * g, g += f * h, h -= g * i, i += h * j;
    j -= i * k, k += j * l, l -= k * m, m += l * o, o -= m * q, q += o * r, r -= q * s, s += r * t, t -= s * u;
    u += t * v, v -= u * a;
  }
  return a + b + c + d + e + f + g + h + i + j + k + l + m + o + q + r + s + t + u + v;
}
""",
}


@pytest.fixture(scope="session")
def pressed_corpus(tmp_path_factory: pytest.TempPathFactory, make_corpus: Callable[..., Corpus]) -> Corpus:
    """Three modules with register pressure.

    app/leaf.c.o has no eviction decision; two of the three functions of app/pressed.c.o have some.
    """
    return make_corpus(tmp_path_factory.mktemp("pressed") / "corpus", PRESSED)
