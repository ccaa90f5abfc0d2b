"""Whole projects built by stock clang and by a release clang."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from components.console import UserError
from components.evaluation.builds import require_same_version
from components.formats.toolchain import Toolchain

CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(unknown CXX)
add_library(stack SHARED stack.cpp)
add_library(part STATIC stack.cpp)
add_executable(main main.cpp)
target_link_libraries(main stack)
"""
STACK = """
#include <string>
#include <vector>
std::vector<std::string> stack;
void push(const std::string &word) { stack.push_back(word + word); }
int depth() { return static_cast<int>(stack.size()); }
"""
MAIN = """
#include <iostream>
#include <string>
void push(const std::string &);
int depth();
int main(int count, char **words) {
  for (int i = 0; i < count; ++i) push(words[i]);
  std::cout << depth() << "\\n";
}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    source.mkdir()
    for name, text in (("CMakeLists.txt", CMAKE), ("stack.cpp", STACK), ("main.cpp", MAIN)):
        (source / name).write_text(text)
    path = tmp_path / "recipe.yaml"
    binaries = "[libstack.so, libpart.a, main]"
    path.write_text(f"name: unknown\nsource: {{path: {source}}}\ncmake: {{}}\nbinaries: {binaries}\n")
    return path


def evaluation(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "components.evaluation", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.mark.slow
def test_only_the_policy_differs(tmp_path: Path, recipe: Path, release: Path) -> None:
    output = tmp_path / "binaries"
    done = evaluation("compare-binaries", "--recipe", recipe, "--release-toolchain", release, "--output", output)
    assert done.returncode == 0, done.stderr
    entries = {entry["name"]: entry for entry in json.loads((output / "binaries.json").read_text())}
    assert {name: entry["kind"] for name, entry in entries.items()} == {
        "libpart.a": "static library", "libstack.so": "shared library", "main": "program",
    }  # fmt: skip
    # The policy never inlines: other code. What no decision touches stays as it was.
    library = entries["libstack.so"]
    assert library["stock"]["text"] != library["policy"]["text"]
    assert library["stock"]["rodata"] == library["policy"]["rodata"]
    assert "unknown/libstack.so" in done.stdout
    assert sorted(path.name for path in output.iterdir()) == ["binaries.json", "manifest.json"]


@pytest.mark.slow
def test_evaluation_rebuilds_the_projects_that_are_held_out(
    tmp_path: Path, recipe: Path, corpus_directory: Path, training_toolchain: Path, release: Path, never: Path
) -> None:
    output = tmp_path / "evaluation"
    done = evaluation(
        "--corpus", corpus_directory, "--toolchain", training_toolchain, "--policy", never, "--release-toolchain",
        release, "--recipe", recipe, "--thresholds", "", "--output", output,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    metrics = json.loads((output / "metrics.json").read_text())
    assert [binary["name"] for binary in metrics["binaries"]] == ["libpart.a", "libstack.so", "main"]
    page = (output / "report.html").read_text()
    assert "unknown/libstack.so" in page
    assert sorted(path.name for path in output.iterdir()) == [
        "manifest.json", "measurements.json", "metrics.json", "model-card.json", "model-card.md", "report.csv",
        "report.html", "summary.md",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_project_that_does_not_build_leaves_nothing(tmp_path: Path, recipe: Path, release: Path) -> None:
    (tmp_path / "source" / "CMakeLists.txt").write_text("this is no CMake\n")
    output = tmp_path / "out"
    done = evaluation("compare-binaries", "--recipe", recipe, "--release-toolchain", release, "--output", output)
    assert done.returncode == 1
    assert "unknown cannot be configured" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["recipe.yaml", "source"]


@pytest.mark.parametrize(
    ("said", "message"), [("clang version 18.1.8 (x)", r"18\.1\.8, the release clang 19\.1\.7"), ("gcc", "unknown")]
)
def test_another_version_is_refused(tmp_path: Path, said: str, message: str) -> None:
    clang = tmp_path / "clang"
    clang.write_text(f"#!/bin/sh\necho '{said}'\n")
    clang.chmod(0o755)
    release = Toolchain(tmp_path, "release", "19.1.7", "x86_64-pc-linux-gnu", {}, {})
    with pytest.raises(UserError, match=message):
        require_same_version(clang, release)


def test_stock_clang_of_the_same_version_is_taken() -> None:
    said = subprocess.run(["clang-19", "--version"], capture_output=True, text=True, check=True).stdout
    version = said.split("clang version ")[1].split()[0]
    release = Toolchain(Path("/nowhere"), "release", version, "x86_64-pc-linux-gnu", {}, {})
    require_same_version(Path("/usr/bin/clang-19"), release)


def test_a_stock_clang_that_is_not_there_is_named(tmp_path: Path) -> None:
    release = Toolchain(tmp_path, "release", "19.1.7", "x86_64-pc-linux-gnu", {}, {})
    with pytest.raises(UserError, match="does not run"):
        require_same_version(tmp_path / "clang", release)
