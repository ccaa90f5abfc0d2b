"""The release toolchain's ld.lld: links of ThinLTO and full LTO inline by the policy."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from components.core.compiler.objects.elf import Elf
from components.core.compiler.replay.command_line import replay_arguments
from components.core.formats.corpus import load_corpus
from components.core.formats.toolchain import load_toolchain
from components.corpus.compilers import compilers
from components.corpus.extract_command import extract

pytestmark = pytest.mark.toolchain

STOCK = Path("/usr/lib/llvm-19/bin/clang++")
POLICY = ["-Wl,-mllvm,-enable-ml-inliner=release"]
SOURCES = {
    "table.cc": """
#include "table.h"
void Table::add(const std::string &name, int value) { rows[name].push_back(value); ++count; }
int Table::sum(const std::string &name) const {
  int all = 0;
  for (int x : rows.at(name)) all += x;
  return all;
}
void Table::erase(const std::string &name) { if (rows.erase(name)) --count; }
std::vector<std::string> Table::names() const {
  std::vector<std::string> result;
  for (const auto &row : rows) result.push_back(row.first + ":" + std::to_string(row.second.size()));
  return result;
}
""",
    "main.cc": """
#include "table.h"
#include <cstdio>
int main() {
  Table table;
  for (int i = 0; i < 20; ++i) table.add("row" + std::to_string(i % 7), i * i);
  table.erase("row3");
  for (const std::string &name : table.names()) std::printf("%s\\n", name.c_str());
  std::printf("%d %d\\n", table.sum("row1"), table.count);
}
""",
}
PRINTS = """
#include <stdio.h>
static const char *const names[] = {"a", "b"};
void print(int a) { printf("hello\\n"); printf("%s\\n", names[a & 1]); printf("hello again\\n"); }
"""
HEADER = """
#pragma once
#include <map>
#include <string>
#include <vector>
struct Table {
  void add(const std::string &name, int value);
  int sum(const std::string &name) const;
  void erase(const std::string &name);
  std::vector<std::string> names() const;
  int count = 0;
  std::map<std::string, std::vector<int>> rows;
};
"""


@pytest.fixture
def toolchain(pretrained_release: Path) -> Path:
    """The release toolchain that is tested."""
    return pretrained_release


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    (tmp_path / "table.h").write_text(HEADER)
    for name, text in SOURCES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def link(clang: Path, directory: Path, output: str, mode: str, *more: str) -> bytes:
    flags = ["-Oz", f"-flto={mode}", "-fvisibility=hidden", "-fuse-ld=lld", "-Wl,--gc-sections", *more]
    subprocess.run([clang, *flags, *SOURCES, "-o", output], cwd=directory, check=True)
    return (directory / output).read_bytes()


def text_bytes(program: bytes) -> int:
    return Elf(memoryview(program)).text_size()


@pytest.mark.parametrize("mode", ["thin", "full"])
def test_policy_of_the_linker_makes_lto_programs_smaller(toolchain: Path, sources: Path, mode: str) -> None:
    stock = link(STOCK, sources, "stock", mode)
    ours = link(toolchain / "bin" / "clang++", sources, "ours", mode, *POLICY)
    assert text_bytes(ours) < 0.99 * text_bytes(stock)
    outputs = [subprocess.run([sources / name], capture_output=True, check=True).stdout for name in ("stock", "ours")]
    assert outputs[0] == outputs[1] != b""


@pytest.mark.parametrize("mode", ["thin", "full"])
def test_without_our_defaults_programs_are_those_of_stock_tools(toolchain: Path, sources: Path, mode: str) -> None:
    """With LLVM's heuristic, its pipeline of full LTO and its outliner."""
    off = ["-mlgo-whole-program=0", "-mlgo-outline=0", "-enable-ml-inliner=default"]
    flags = [flag for option in off for flag in ("-mllvm", option, f"-Wl,-mllvm,{option}")]
    assert link(toolchain / "bin" / "clang++", sources, "ours", mode, *flags) == link(STOCK, sources, "stock", mode)


@pytest.mark.parametrize("mode", ["thin", "full"])
def test_register_allocation_policy_decides_in_the_link(toolchain: Path, sources: Path, mode: str) -> None:
    clang = toolchain / "bin" / "clang++"
    heuristic = link(clang, sources, "heuristic", mode, "-O2")
    ours = link(clang, sources, "ours", mode, "-O2", "-Wl,-mllvm,-regalloc-enable-advisor=release")
    assert ours != heuristic
    outputs = [
        subprocess.run([sources / name], capture_output=True, check=True).stdout for name in ("heuristic", "ours")
    ]
    assert outputs[0] == outputs[1] != b""


def test_distributed_thinlto_compiles_with_the_policy(toolchain: Path, sources: Path) -> None:
    """The linker writes the index only; clang then compiles each module, as on a build farm."""
    clang = toolchain / "bin" / "clang++"
    for name in SOURCES:
        subprocess.run([clang, "-Oz", "-flto=thin", "-c", name], cwd=sources, check=True)
    objects = [name.replace(".cc", ".o") for name in SOURCES]
    index_only = ["-flto=thin", "-fuse-ld=lld", "-Wl,--thinlto-index-only", "-o", "program"]
    subprocess.run([clang, *index_only, *objects], cwd=sources, check=True)
    for policy in ("default", "release"):
        for name in objects:
            flags = ["-Oz", "-x", "ir", f"-fthinlto-index={name}.thinlto.bc", "-mllvm", f"-enable-ml-inliner={policy}"]
            subprocess.run([clang, *flags, "-c", name, "-o", f"{name}.{policy}"], cwd=sources, check=True)
    sizes = {
        policy: sum(text_bytes((sources / f"{name}.{policy}").read_bytes()) for name in objects)
        for policy in ("default", "release")
    }
    assert sizes["release"] < sizes["default"]


def test_toolchain_says_whether_it_has_a_linker(toolchain: Path, training_toolchain: Path) -> None:
    assert load_toolchain(toolchain).built["lld"] == "yes"
    assert load_toolchain(training_toolchain).built["lld"] == "no"
    done = subprocess.run([toolchain / "bin" / "ld.lld", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(("LLD 19.", "Debian LLD 19."))


@pytest.mark.parametrize("policy", [False, True])
def test_training_clang_makes_the_same_object_of_a_program_as_the_linker(
    toolchain: Path, training_toolchain: Path, sources: Path, tmp_path: Path, policy: bool
) -> None:
    """The program's module and arguments are those that mlgo corpus extract --unit program writes."""
    made, corpus = tmp_path / "compilers", tmp_path / "corpus"
    (tmp_path / "part.c").write_text(PRINTS)
    invoke = CliRunner().invoke
    assert invoke(compilers, ["--unit", "program", "--output", str(made)]).exit_code == 0
    build = [*SOURCES, "-fno-exceptions", "-x", "c", "part.c", "-x", "none", "-o", "program"]
    subprocess.run([made / "clang++", *build], cwd=sources, check=True)
    extracted = invoke(extract, ["--unit", "program", "--input", str(made), "--output", str(corpus)])
    assert extracted.exit_code == 0, extracted.output
    (module,) = load_corpus(corpus).modules
    flags = ["-Oz", "-g0", "-flto", "-fuse-ld=lld", "-Wl,--lto-obj-path=linked.o", *(POLICY if policy else [])]
    subprocess.run([toolchain / "bin" / "clang++", *flags, *build], cwd=sources, check=True)
    clang = (toolchain if policy else training_toolchain) / "bin" / "clang"
    more = ["-mllvm", "-enable-ml-inliner=release"] if policy else []

    def replayed(clang: Path, *more: str) -> bytes:
        output = tmp_path / "replayed.o"
        subprocess.run([clang, *replay_arguments(module.arguments(), module.bitcode, output, more)], check=True)
        return output.read_bytes()

    linked = (sources / "linked.o").read_bytes()
    assert replayed(clang, *more) == linked
    assert replayed(clang, *more, "-mllvm", "-mlgo-program=0") != linked
    assert replayed(STOCK) != linked  # but stock clang compiles it, too
