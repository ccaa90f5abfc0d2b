"""Tests that modules compiled with the flags of large public projects are replayed to the same code."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from components.core.compiler.objects.elf import Elf
from components.core.compiler.replay.command_line import replay_arguments
from components.core.formats.corpus import load_corpus
from components.core.formats.strategy import SUPPORTED_LLVM_MAJORS
from tests.components.core.compiler.replay.project_flags import FLAG_SETS, FlagSet

EMBED = ("-Xclang", "-fembed-bitcode=all")
SOURCES = {
    "c": """
extern int put(int); extern int table[8];
struct pair { int first; char rest[20]; };
static int small(int x) { return x * 3 + table[x & 7]; }
static __attribute__((noinline)) int loop(struct pair *p, int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += small(p[i].first) / (n + 1);
  return sum;
}
int root(int y) {
  struct pair local[4] = {{0}};
  local[y & 3].first = put(y);
  switch (y) {
  case 1: return put(2); case 2: return put(5); case 3: return put(7); case 4: return put(1); case 5: return put(9);
  }
  return loop(local, 4) + small(y);
}
""",
    "c++": """
extern "C" int put(int); extern int table[8];
template <typename T> struct Box { T value; T twice() const { return value + value; } };
struct Base { virtual int size() const; virtual ~Base() = default; int count = 0; };
struct Derived final : Base { int size() const override { return put(count) + 1; } };
int Base::size() const { return count; }
static int small(int x) { return x * 3 + table[x & 7]; }
int sum(const Base &base, int n) {
  int result = base.size();
  for (int i = 0; i < n; ++i) result += small(i) / (n + 1);
  return result + Box<int>{n}.twice();
}
int root(int y) { Derived local; local.count = y; return sum(local, y) + small(y); }
""",
}


def compile_source(clang: Path, item: FlagSet, directory: Path, flags: Sequence[str]) -> Elf:
    source = "source.c" if item.language == "c" else "source.cpp"
    (directory / source).write_text(SOURCES[item.language])
    command = [clang, f"--target={item.target}", item.level, *flags, "-c", source, "-o", "object.o"]
    done = subprocess.run([*map(str, command)], cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Elf((directory / "object.o").read_bytes())


def text_sections(elf: Elf) -> list[tuple[str, bytes]]:
    """Return names and contents in order: with -fno-unique-section-names many have the same name."""
    sections = [(elf.section_name(i), bytes(elf.contents(i))) for i in elf.sections_named(b".text")]
    return [section for section in sections if section[1]]


@pytest.mark.parametrize("item", FLAG_SETS, ids=lambda item: item.name)
@pytest.mark.parametrize("major", sorted({major for majors in SUPPORTED_LLVM_MAJORS.values() for major in majors}))
@pytest.mark.toolchain
def test_modules_of_public_projects_replay_to_the_same_text(item: FlagSet, major: int, tmp_path: Path) -> None:
    program = shutil.which(f"clang-{major}")
    assert program, f"install clang-{major}"
    clang = Path(program)
    flags = shlex.split(item.flags)
    built, replayed = tmp_path / "built", tmp_path / "replayed"
    built.mkdir()
    replayed.mkdir()
    elf = compile_source(clang, item, built, [*flags, *EMBED])
    bitcode, command = elf.section(".llvmbc"), elf.section(".llvmcmd")
    assert bitcode and command
    (replayed / "m.bc").write_bytes(bitcode)
    recorded = bytes(command).decode().removesuffix("\0").split("\0")
    driver = [f"--target={item.target}", item.level, *flags]
    for arguments in (recorded, driver):
        compile_again = [str(clang), *replay_arguments(arguments, replayed / "m.bc", replayed / "m.o")]
        done = subprocess.run(compile_again, cwd=replayed, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        text = text_sections(Elf((replayed / "m.o").read_bytes()))
        assert sum(len(content) for _, content in text) > 100
        assert text == text_sections(elf)
        (replayed / "m.o").unlink()
        assert sorted(path.name for path in replayed.iterdir()) == ["m.bc"]


@pytest.mark.toolchain
def test_documented_extraction_of_chromium_and_fuchsia_is_traced(
    clang: Path, training_toolchain: Path, tmp_path: Path
) -> None:
    """The options of docs/own-code.md, on objects with these projects' flags for this processor."""
    commands = []
    for item in FLAG_SETS:
        if item.name.startswith(("chromium", "fuchsia")) and item.level in ("-Oz", "-Os") and "x86_64" in item.target:
            directory = tmp_path / "out" / item.name
            directory.mkdir(parents=True)
            compile_source(clang, item, directory, [*shlex.split(item.flags), *EMBED])
            arguments = ["clang++", "-c", f"{item.name}/source.cpp", "-o", f"{item.name}/object.o"]
            commands.append({"directory": str(directory.parent), "file": arguments[2], "arguments": arguments})
    assert len(commands) >= 3
    database, corpus = tmp_path / "out" / "compile_commands.json", tmp_path / "corpus"
    database.write_text(json.dumps(commands))
    extract = ["corpus", "extract", "--compile-commands", database, "--cmd-filter", "^-Oz$|^-Os$", "--output", corpus]
    trace = ["trace", "--corpus", corpus, "--toolchain", training_toolchain, "--output", tmp_path / "trace"]
    for step, *options in (extract, trace):
        command = [sys.executable, "-m", f"components.{step}", *map(str, options)]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert len(list(load_corpus(corpus))) == len(commands)
    assert "failed" not in done.stderr
