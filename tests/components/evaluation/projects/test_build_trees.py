"""Tests of compare-builds with two build trees made by clang."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from components.core.projects.flags.section_sizes import measure
from components.evaluation.__main__ import main
from components.evaluation.projects.build_trees import compare_trees
from components.evaluation.projects.commands import EXIT_NOT_BETTER
from components.platform.errors import UserError

SOURCE = f"""
static int square(int x) {{ for (int i = 0; i < x; ++i) x += i * x; return x; }}
int library(int a, int b) {{ return {" + ".join(f"square(a * b + {i})" for i in range(40))}; }}
"""
MAIN = "int library(int, int); int main(int argc, char **argv) { return library(argc, 3); }"


def build(tree: Path, *flags: str) -> Path:
    """Build a program, a shared and a static library, and files to skip: objects, symbolic links, trial programs."""
    for directory in ("bin", "lib", "CMakeFiles/CompilerIdC", ".cache"):
        (tree / directory).mkdir(parents=True)
    (tree / "library.c").write_text(SOURCE)
    (tree / "main.c").write_text(MAIN)
    for command in (
        ["clang-19", *flags, "-fPIC", "-g", "-c", "library.c", "-o", "library.o"],
        ["clang-19", *flags, "-shared", "library.o", "-o", "lib/liblibrary.so.1"],
        ["llvm-ar-19", "rc", "lib/liblibrary.a", "library.o"],
        ["clang-19", *flags, "main.c", "library.o", "-o", "bin/main"],
    ):
        subprocess.run(command, cwd=tree, check=True)
    (tree / "lib/liblibrary.so").symlink_to("liblibrary.so.1")
    shutil.copy(tree / "bin/main", tree / "CMakeFiles/CompilerIdC/a.out")
    shutil.copy(tree / "bin/main", tree / ".cache/main")
    return tree


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("trees")
    return build(directory / "old", "-O3"), build(directory / "new", "-Oz")


@pytest.fixture
def changed(trees: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of the new tree that a test may modify."""
    return shutil.copytree(trees[1], tmp_path / "new", symlinks=True)


def compare(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["compare-builds", *map(str, arguments)], standalone_mode=False)


def test_common_binaries_are_compared_and_other_files_skipped(trees: tuple[Path, Path]) -> None:
    compared = compare_trees(*trees)
    kinds = {binary.name: binary.kind for binary in compared.binaries}
    assert kinds == {
        "bin/main": "program",
        "lib/liblibrary.a": "static library",
        "lib/liblibrary.so.1": "shared library",
    }
    assert compared.only_old == compared.only_new == compared.different == ()
    for binary in compared.binaries:
        assert (binary.stock, binary.policy) == tuple(measure(tree / binary.name).sizes for tree in trees)
        assert binary.policy.text < binary.stock.text


def test_embedded_bitcode_does_not_count_and_is_named(trees: tuple[Path, Path], tmp_path: Path) -> None:
    embedding = build(tmp_path / "embedding", "-Oz", "-Xclang", "-fembed-bitcode=all")
    compared = compare_trees(embedding, trees[1])
    assert all(binary.stock.total == binary.policy.total for binary in compared.binaries if binary.language)
    (files, size_bytes), without = compared.bitcode
    assert (files, without) == (2, (0, 0)) and size_bytes > 2000
    done = compare(embedding, trees[1])
    assert f"{size_bytes:,} bytes" in done.output + done.stderr


def test_files_without_counterpart_are_listed_and_others_compared(trees: tuple[Path, Path], changed: Path) -> None:
    (changed / "lib/liblibrary.a").rename(changed / "lib/libother.a")
    truncated = (changed / "lib/liblibrary.so.1").read_bytes()[:5000]
    (changed / "lib/liblibrary.so.1").write_bytes(truncated)
    compared = compare_trees(trees[0], changed)
    assert [binary.name for binary in compared.binaries] == ["bin/main"]
    assert (compared.only_old, compared.only_new) == (("lib/liblibrary.a",), ("lib/libother.a",))
    assert compared.different == ("lib/liblibrary.so.1",)


def test_separate_debug_files_are_skipped(trees: tuple[Path, Path], changed: Path) -> None:
    for tree in (shutil.copytree(trees[0], changed.with_name("old"), symlinks=True), changed):
        program = tree / "bin/main"
        subprocess.run(["llvm-objcopy-19", "--only-keep-debug", program, tree / "bin/main.debug"], check=True)
    names = [binary.name for binary in compare_trees(changed.with_name("old"), changed).binaries]
    assert "bin/main" in names and "bin/main.debug" not in names


def test_files_for_different_machines_are_left_out(trees: tuple[Path, Path], changed: Path) -> None:
    program = changed / "bin/main"
    data = bytearray(program.read_bytes())
    data[18:20] = (183).to_bytes(2, "little")  # EM_AARCH64
    program.write_bytes(data)
    assert compare_trees(trees[0], changed).different == ("bin/main",)


def test_trees_without_common_binaries_are_refused(trees: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="3 in the first"):
        compare_trees(trees[0], tmp_path)
    with pytest.raises(UserError, match=r"\*\.exe"):
        compare_trees(*trees, ["*.exe"])


@pytest.mark.parametrize(("name", "problem"), [("missing", "cannot be read"), ("file", "is a file, not a build")])
def test_missing_directory_is_refused(trees: tuple[Path, Path], tmp_path: Path, name: str, problem: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=f"{name} {problem}"):
        compare_trees(trees[0], tmp_path / name)


def test_command_prints_writes_and_checks_the_reduction(trees: tuple[Path, Path], tmp_path: Path) -> None:
    old, new = trees
    done = compare(old, new, "--output", tmp_path / "out", "--min-reduction-percent", "1")
    assert done.return_value == 0, done.output
    assert "all (2)" in done.output and "smaller" in done.output
    assert "linked, as built, C" not in done.output, "it would repeat the line"
    content = json.loads((tmp_path / "out/binaries.json").read_text())
    assert content["linked"]["as built"]["all"]["reduction_percent"] > 1 and content["only_new"] == []
    done = compare(new, old, "--min-reduction-percent", "0")
    assert done.return_value == EXIT_NOT_BETTER
    assert re.search(r"not enough: the reduction of linked files is -\d+\.\d\d%; at least 0% is required", done.output)
    assert compare(new, old).return_value == 0
    selected = compare(old, new, "--binary", "bin/*")
    assert "(1):" in selected.output and "liblibrary" not in selected.output


def test_minimum_reduction_requires_a_linked_file(trees: tuple[Path, Path]) -> None:
    done = compare(*trees, "--binary", "*.a", "--min-reduction-percent", "1")
    assert isinstance(done.exception, UserError) and "shared library" in done.exception.problem
