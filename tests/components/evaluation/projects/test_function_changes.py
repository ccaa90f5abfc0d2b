"""Functions that differ most between two builds, by real compilers and linkers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from components.core.projects.flags.section_sizes import measure
from components.evaluation.metrics_types import FunctionChange
from components.evaluation.projects.function_changes import function_changes, function_sizes
from tests.support.commands import run_command

CODE = """
namespace table { struct Row { int cells[9]; int sum(int from) const; };
int Row::sum(int from) const { int all = 0; for (int i = from; i < 9; ++i) all += cells[i] * SCALE; return all; } }
static int helper(int x) { return x * 3 + 1; }
__attribute__((noinline)) extern "C" int first(int x) { return helper(x) + helper(x + 1); }
#ifdef MORE
extern "C" int added(int x) { return x * 7 + first(x); }
#endif
int main(int argc, char **) { table::Row row{}; return row.sum(argc) + first(argc); }
"""


@pytest.fixture
def trees(tmp_path: Path) -> tuple[Path, Path]:
    """A program and a static library, compiled for size and with one function more for speed."""
    trees = []
    for name, flags in (("old", ["-Oz", "-DSCALE=3"]), ("new", ["-O3", "-DSCALE=12345", "-DMORE"])):
        tree = tmp_path / name
        tree.mkdir()
        (tree / "code.cc").write_text(CODE)
        for command in (
            ["clang++-19", *flags, "-c", "code.cc", "-o", "code.o"],
            ["clang++-19", "code.o", "-o", "app"],
            ["llvm-ar-19", "rc", "libcode.a", "code.o"],
        ):
            subprocess.run(command, cwd=tree, check=True)
        trees.append(tree)
    return trees[0], trees[1]


def test_sizes_are_those_of_the_symbol_table(trees: tuple[Path, Path]) -> None:
    sizes = function_sizes(trees[0] / "libcode.a")
    lines = subprocess.check_output(["llvm-nm-19", "-S", trees[0] / "code.o"], text=True).splitlines()
    listed = {line.split()[3]: int(line.split()[1], 16) for line in lines if " T " in line or " t " in line}
    assert sizes == listed and {"first", "main", "_ZNK5table3Row3sumEi"} <= sizes.keys()
    # The program has the same functions and those of its start-up files.
    program = function_sizes(trees[0] / "app")
    assert {name: program[name] for name in sizes} == sizes
    assert sum(program.values()) <= measure(trees[0] / "app").sizes.text


def test_largest_changes_come_first_with_readable_names(trees: tuple[Path, Path]) -> None:
    old, new = (function_sizes(tree / "app") for tree in trees)
    pairs = [("app", old, new)]
    changes = function_changes(pairs, 10)
    by_name = {change.function: change for change in changes}
    row, added = by_name["table::Row::sum(int) const"], by_name["added"]
    assert 0 < row.old < row.new and (added.old, added.new > 0) == (0, True)
    growth = [change.new - change.old for change in changes if change.new > change.old]
    assert growth == sorted(growth, reverse=True) and len(growth) >= 2
    backwards = function_changes([("app", new, old)], 1)
    assert [(change.old, change.new) for change in backwards] == [(changes[0].new, changes[0].old)]
    assert function_changes([("app", old, old)], 10) == []


LAMBDAS = """
#include <algorithm>
#include <vector>
static int largest(std::vector<int> &all, int by) {
  std::sort(all.begin(), all.end(), [by](int a, int b) { return a * by > b; });
  return all[0];
}
int main(int argc, char **) { std::vector<int> all(argc); return largest(all, argc); }
"""


def test_lambdas_that_gcc_and_clang_name_differently_are_compared(tmp_path: Path) -> None:
    (tmp_path / "code.cc").write_text(LAMBDAS)
    for compiler in ("g++", "clang++-19"):
        subprocess.run([compiler, "-Os", "-c", "code.cc", "-o", f"{compiler}.o"], cwd=tmp_path, check=True)
    sizes = [function_sizes(tmp_path / f"{compiler}.o") for compiler in ("g++", "clang++-19")]
    assert any("EUl" in name for name in sizes[0]) and any("3$_0" in name for name in sizes[1])
    changes = function_changes([("code", sizes[0], sizes[1])], 1000)
    heaps = [change for change in changes if "__adjust_heap" in change.function]
    assert [change.old > 0 < change.new for change in heaps] == [True], "one function in both"
    assert "{lambda}" in heaps[0].function


def test_function_of_several_binaries_is_listed_once(trees: tuple[Path, Path]) -> None:
    old, new = (function_sizes(tree / "app") for tree in trees)
    pairs = [(name, old, new) for name in ("one", "two")]
    changes = function_changes(pairs, 10)
    assert {change.binary for change in changes} == {"one"}
    assert len(changes) == len({change.function for change in changes})
    assert next(change for change in changes if "Row::sum" in change.function).symbol == "_ZNK5table3Row3sumEi"


def test_copies_and_parts_are_their_functions_and_names_of_one_address_are_one(tmp_path: Path) -> None:
    (tmp_path / "parts.s").write_text(
        """
        .text
        .type f,@function
        f: .skip 10
        .size f,10
        .type f.cold,@function
        f.cold: .skip 5
        .size f.cold,5
        .type g.llvm.123,@function
        g.llvm.123: .skip 7
        .size g.llvm.123,7
        .type alias,@function
        .type zebra,@function
        alias: zebra: .skip 3
        .size alias,3
        .size zebra,3
        .type OUTLINED_FUNCTION_0,@function
        OUTLINED_FUNCTION_0: .skip 2
        .size OUTLINED_FUNCTION_0,2
        .type OUTLINED_FUNCTION_3,@function
        OUTLINED_FUNCTION_3: .skip 4
        .size OUTLINED_FUNCTION_3,4
        """
    )
    subprocess.run(["clang-19", "-c", "parts.s", "-o", "parts.o"], cwd=tmp_path, check=True)
    assert function_sizes(tmp_path / "parts.o") == {"f": 15, "g": 7, "alias": 3, "outlined pieces": 6}


def test_stripped_files_have_no_functions(trees: tuple[Path, Path], tmp_path: Path) -> None:
    subprocess.run(["llvm-strip-19", "-o", tmp_path / "stripped", trees[0] / "app"], check=True)
    assert function_sizes(tmp_path / "stripped") == {}
    assert function_changes([("a", {}, function_sizes(trees[1] / "app"))], 10) == []


def test_command_shows_and_writes_them(trees: tuple[Path, Path], tmp_path: Path) -> None:
    done = run_command(
        "components.evaluation", "compare-builds", *trees, "--output", tmp_path / "out", "--functions", "3"
    )
    assert done.returncode == 0, done.stderr
    assert "grew most" in done.stdout and "table::Row::sum(int) const" in done.stdout
    functions = json.loads((tmp_path / "out/binaries.json").read_text())["functions"]
    assert FunctionChange(**functions[0]).new > functions[0]["old"]
    # Two files, whatever their names.
    files = run_command("components.evaluation", "compare-builds", trees[0] / "app", trees[1] / "libcode.a")
    assert files.returncode == 1 and "in common" in files.stderr
    (trees[1] / "app").rename(trees[1] / "renamed")
    files = run_command(
        "components.evaluation", "compare-builds", trees[0] / "app", trees[1] / "renamed", "--functions", "1"
    )
    assert files.returncode == 0 and "all (1)" in files.stdout, files.stderr
    assert files.stdout.count("table::Row::sum(int) const") <= 1 and "grew most" in files.stdout
    (trees[1] / "renamed").rename(trees[1] / "app")
    none = run_command("components.evaluation", "compare-builds", *trees, "--functions", "0")
    assert none.returncode == 0 and "Functions that" not in none.stdout
