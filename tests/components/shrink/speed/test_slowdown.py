"""`mlgo shrink --max-slowdown`: a build for size whose hot calls are those of the user's benchmark."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from components.core.projects.speed.counters import find_counter
from components.platform.errors import UserError
from components.shrink.rows import PROGRAM
from components.shrink.speed import slowdown
from components.shrink.speed.clang_profile import ClangProfile, find_profdata
from components.shrink.speed.slowdown import FastSearch, Level, SpeedLimit, require_counter
from tests.support.commands import run_command

_COLD = "".join(
    f"""
__attribute__((noinline)) unsigned cold{i}(unsigned a, const char *s) {{
  for (; *s; s++) {{ a = mix(a, *s); if (a % {i + 3} == 1) a = mix(a, {i}); else printf("{i} %u\\n", a); }}
  switch (a % 5) {{ case 0: return mix(a, 1); case 1: return mix(a, s[-1]); case 2: return puts("{i}"); }}
  return mix(mix(a, 7), 9);
}}
"""
    for i in range(40)
)
_CALLS = "\n".join(f"  if (argc == {i + 10}) sum += cold{i}(sum, argv[{i + 1}]);" for i in range(40))
SOURCES = {
    "main.c": f"""
#include <signal.h>
#include <stdio.h>
static inline unsigned mix(unsigned a, unsigned b) {{
  a ^= b << 5; a += b >> 3; a *= 2654435761u; a ^= a >> 15; a -= b << 7; return a ^ (a << 3);
}}
{_COLD}
int main(int argc, char **argv) {{
  unsigned sum = 0;
  for (unsigned i = 0; i < 300000; i++) sum = mix(sum, i);
{_CALLS}
  printf("%u\\n", sum);
  fflush(stdout);
  return argc > 1 ? raise(SIGKILL) : 0;
}}
""",
    "Makefile": "CC ?= gcc\napp: main.o\n\t$(CC) $^ -o $@\nmain.o: main.c\n\t$(CC) -O2 -c $< -o $@\n",
}
# clang lacks the attribute: only gcc's builds can be used.
GCC_ONLY = """
struct __attribute__((scalar_storage_order("big-endian"))) number { int value; };
"""
_PERCENT = 2.0
_LEVELS = [Level(str(number)) for number in range(18)]


def run_shrink(source: Path, release: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    options = ["--release-toolchain", release, "--output", source.parent / "out"]
    options += ["--no-compare-stock", "--no-check"]
    return run_command("components.shrink", *options, *arguments, timeout=600, cwd=source)


def instructions(program: Path, directory: Path) -> int:
    counter, figures = find_counter(), directory / "figures"
    subprocess.run([*counter.command(figures), program], check=True, stdout=subprocess.DEVNULL)
    return counter.read(figures).instructions


@pytest.mark.toolchain
@pytest.mark.parametrize(("compiler", "share"), [("program", 0.7), ("gcc", 0.4)])
def test_the_delivered_build_holds_the_limit_and_its_compilers_make_it_again(
    pretrained_release: Path, source: Path, tmp_path: Path, compiler: str, share: float
) -> None:
    # Two processes, one of which is killed.
    arguments = ["--benchmark", "./app & ./app killed || test $? = 137; wait", "--max-slowdown", "2", "--", "make"]
    if compiler == "gcc":
        with (source / "main.c").open("a") as text:
            text.write(GCC_ONLY)
    else:
        arguments.insert(0, "--no-other-compilers")
    done = run_shrink(source, pretrained_release, *arguments)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "out/shrink.json").read_text())
    builds = {build["name"]: build for build in document["builds"]}
    assert document["chosen"] == f"{compiler}-fast"
    small = builds["gcc-Oz" if compiler == "gcc" else compiler]
    assert "more than --max-slowdown 2 allows" in small["failure"]
    own, fast = builds["own"], builds[f"{compiler}-fast"]
    assert own["loaded"] - fast["loaded"] >= share * (own["loaded"] - small["loaded"])
    assert small["instructions"] > 1.02 * own["instructions"] >= fast["instructions"] > 0
    assert "(limit +2% instructions)" in done.stdout
    subprocess.run(["make", "-C", source], check=True, capture_output=True)
    assert instructions(tmp_path / "out/files/app", tmp_path) <= 1.02 * instructions(source / "app", tmp_path)
    subprocess.run(["sh", "-ec", f"rm main.o app; {fast['build']}; make"], cwd=source, check=True, capture_output=True)
    assert (source / "app").read_bytes() == (tmp_path / "out/files/app").read_bytes()


def test_a_limit_needs_a_benchmark(source: Path, tmp_path: Path) -> None:
    done = run_shrink(source, tmp_path, "--max-slowdown", "2", "--", "make")
    assert done.returncode != 0
    assert "pass --benchmark COMMAND" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_limit_needs_a_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UserError, match="--max-slowdown") as caught:
        require_counter()
    assert "valgrind" in caught.value.remedy


def test_what_profiles_need_is_named_with_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    stock, clang = tmp_path / "clang-19", tmp_path / "clang"
    for program in (stock, clang):
        program.write_text("#!/bin/sh\necho no libclang_rt.profile.a >&2\nexit 1\n")
        program.chmod(0o755)
    with pytest.raises(UserError, match="needs llvm-profdata") as caught:
        find_profdata(stock, clang)
    assert "llvm-19" in caught.value.remedy
    (tmp_path / "llvm-profdata").touch()
    with pytest.raises(UserError, match="libclang_rt") as caught:
        find_profdata(stock, clang)
    assert "libclang-rt-19-dev" in caught.value.remedy


class _Counts:
    """A limit whose counts are those of the level that was built last."""

    def __init__(self, counts: Callable[[Level], int]) -> None:
        self.counts = counts
        self.built: list[Level] = []
        self.limit = SpeedLimit(cast(slowdown.Benchmark, self), _PERCENT, find_counter(), own=1000)

    def build(self, level: Level, files: Path) -> int:
        self.built.append(level)
        return _LEVELS.index(level)

    def count(self, files: Path, counter: object) -> int:
        return self.counts(self.built[-1])


@pytest.mark.parametrize("first", [0, 3, len(_LEVELS) - 1, len(_LEVELS)])
def test_the_search_finds_the_smallest_level_that_holds_in_few_builds(tmp_path: Path, first: int) -> None:
    """Or the fastest if none holds."""
    counts = _Counts(lambda level: 1020 if _LEVELS.index(level) >= first else 1100)
    profile = ClangProfile(PROGRAM, tmp_path, Path())
    search = FastSearch(None, counts.limit, profile, None, tmp_path, "loaded", None, _LEVELS, _first=10)  # type: ignore[arg-type]
    assert search._search(counts.build) == _LEVELS[min(first, len(_LEVELS) - 1)]
    assert len(counts.built) <= 6
    assert "+10.0%" in counts.limit.excess(1100)
    assert search.faster(_LEVELS[-1]) is None
