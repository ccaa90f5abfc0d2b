"""The policy decides without flags where code is compiled for size, and only there."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.components.toolchain.programs.test_linker import STOCK, sources

pytestmark = pytest.mark.toolchain
__all__ = ["sources"]

MIXED = """
#include <map>
#include <string>
#include <vector>
static std::map<std::string, std::vector<int>> store;
void add(const std::string &key, int value) { store[key].push_back(value); }
int sum(const std::string &key) { int s = 0; for (int v : store[key]) s += v; return s; }
"""
POLICY = ["-mllvm", "-enable-ml-inliner=release"]


@pytest.fixture
def clang(pretrained_release: Path) -> Path:
    return pretrained_release / "bin" / "clang++"


def compiled(clang: Path, source: Path, *flags: str) -> bytes:
    # The outliner is a default of its own.
    outliner = [] if clang == STOCK else ["-mllvm", "-mlgo-outline=0"]
    subprocess.run([clang, *flags, *outliner, "-c", source, "-o", source.with_suffix(".o")], check=True)
    return source.with_suffix(".o").read_bytes()


def driver_commands(clang: Path, *flags: str) -> str:
    done = subprocess.run([clang, "-###", *flags, "-c", "-x", "c++", "/dev/null"], capture_output=True, text=True)
    return done.stderr


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "mixed.cc"
    path.write_text(MIXED)
    return path


@pytest.mark.parametrize("level", ["-Os", "-Oz"])
def test_size_levels_have_the_policy_without_flags(clang: Path, source: Path, level: str) -> None:
    default, heuristic = compiled(clang, source, level), compiled(STOCK, source, level)
    assert default == compiled(clang, source, level, *POLICY) != heuristic
    for off in (["--no-default-config"], ["-mllvm", "-enable-ml-inliner=default"]):
        assert compiled(clang, source, level, *off) == heuristic
    assert compiled(clang, source, "-O2", level) == default and compiled(clang, source, level, "-O2") != default
    # Words of the linker and of other options are no level; full LTO leaves the passes to the link.
    assert compiled(clang, source, level, "-Xlinker", "-O1") == default
    assert "enable-ml-inliner" not in driver_commands(clang, "-flto=auto", level)
    (source.parent / "flags").write_text(level)
    assert compiled(clang, source, f"@{source.parent / 'flags'}") == default


@pytest.mark.parametrize("level", ["-O0", "-O1", "-O2", "-O3"])
def test_other_levels_are_stock_clangs_with_and_without_the_flag(clang: Path, source: Path, level: str) -> None:
    stock = compiled(STOCK, source, level)
    assert compiled(clang, source, level) == stock == compiled(clang, source, level, *POLICY)


def test_functions_for_size_have_the_policy_in_a_file_for_speed(clang: Path, source: Path) -> None:
    source.write_text(MIXED.replace("int sum", "SMALL int sum").replace("void add", "SMALL void add"))
    level = ["-O2", "-DSMALL=__attribute__((minsize))"]
    stock, policy = compiled(STOCK, source, *level), compiled(clang, source, *level, *POLICY)
    any_level = compiled(clang, source, *level, *POLICY, "-mllvm", "-mlgo-ranges=0")
    assert compiled(clang, source, *level) == stock
    assert len({stock, policy, any_level}) == 3


def test_no_argument_is_called_unused(clang: Path, source: Path) -> None:
    for flags in (["-Oz", "-c"], ["-Oz", "-E"], ["-Oz", "-S"], ["-Oz", "-c", "-flto"]):
        done = subprocess.run(
            [clang, *flags, "-Werror", "-Weverything", "-Wno-c++98-compat", "-w", source, "-o", "/dev/null"],
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, "")
    compiled(clang, source, "-Oz", "-fPIC")
    compiled_object, library = source.with_suffix(".o"), source.with_suffix(".so")
    link: list[str | Path] = [clang, "-Oz", "-Werror", "-shared", compiled_object, "-o", library]
    assert subprocess.run(link, capture_output=True, text=True).stderr == ""


@pytest.mark.parametrize(
    "flags",
    [
        ["-c", "-fembed-bitcode"],
        ["-c", "-fembed-bitcode=marker"],
        ["-c", "-save-temps=obj"],
        ["-fsyntax-only"],
        ["-emit-ast"],
        ["--analyze"],
        ["-M"],
        ["-x", "c++-header", "--precompile"],
    ],
    ids=" ".join,
)
def test_outputs_of_stock_clang_exist_at_size_levels(clang: Path, source: Path, flags: list[str]) -> None:
    command: list[str | Path] = [clang, "-Oz", "-Werror=unused-command-line-argument", *flags, source]
    output: list[str | Path] = [] if "-fsyntax-only" in flags else ["-o", source.with_suffix(".out")]
    done = subprocess.run([*command, *output], capture_output=True, text=True, cwd=source.parent)
    assert (done.returncode, done.stderr) == (0, "")
    assert source.with_suffix(".out").exists() == bool(output)


def test_policy_reaches_compiles_only(clang: Path, source: Path) -> None:
    assembler = subprocess.run([clang, "-###", "-Oz", "-c", "-x", "assembler", source], capture_output=True, text=True)
    assert "enable-ml-inliner" not in assembler.stderr and "-cc1as" in assembler.stderr
    first, second = driver_commands(clang, "-Oz", "-fembed-bitcode").splitlines()[-2:]
    assert "enable-ml-inliner=release" in first and "enable-ml-inliner" not in second
    subprocess.run([clang, "-Oz", "-fembed-bitcode", "-c", source, "-o", source.with_suffix(".o")], check=True)
    assert b"BC\xc0\xde" in source.with_suffix(".o").read_bytes()


def test_linker_takes_the_policy_for_thinlto_but_not_for_whole_programs(clang: Path, sources: Path) -> None:
    def linked(mode: str, *flags: str) -> bytes:
        files = sorted(path for path in sources.iterdir() if path.suffix == ".cc")
        subprocess.run([clang, "-Oz", f"-flto={mode}", *files, "-o", sources / "program", *flags], check=True)
        return (sources / "program").read_bytes()

    for mode, by_default in (("thin", "release"), ("full", "default")):
        assert linked(mode) == linked(mode, f"-Wl,-mllvm,-enable-ml-inliner={by_default}")
    assert linked("thin") != linked("thin", "-Wl,-mllvm,-enable-ml-inliner=default")


def test_plan_for_the_link_alone_is_read(clang: Path, sources: Path) -> None:
    (sources / "plan").write_text("no plan")
    command: list[str | Path] = [clang, "-Oz", "-flto", *sorted(sources.glob("*.cc")), "-o", sources / "program"]
    done = subprocess.run([*command, f"-Wl,-mllvm,-mlgo-inline-plan={sources}/plan"], capture_output=True, text=True)
    assert done.returncode != 0 and "not a plan" in done.stderr


def test_version_says_that_the_policy_is_on(clang: Path) -> None:
    version = subprocess.run([clang, "--version"], capture_output=True, text=True, check=True).stdout
    assert "inlining policy" in version and "on at -Os and -Oz" in version


def test_cmake_takes_the_binutils_next_to_the_clang(clang: Path, tmp_path: Path) -> None:
    (tmp_path / "f.c").write_text("int f(void) { return 1; }\n")
    (tmp_path / "main.c").write_text("int f(void);\nint main(void) { return f() - 1; }\n")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.21)\nproject(p C)\nadd_library(f STATIC f.c)\n"
        "add_executable(main main.c)\ntarget_link_libraries(main f)\nadd_compile_options(-Oz -flto)\n"
    )
    toolchain = clang.parent.parent
    ar = f"{toolchain}/bin/llvm-ar"
    for name, more, environment in (
        ("file", [f"--toolchain={toolchain / 'toolchain.cmake'}"], {}),
        ("environment", [], {"CC": str(clang.with_name("clang"))}),
    ):
        build = tmp_path / name
        configure: list[str | Path] = ["cmake", "-S", tmp_path, "-B", build, "-DCMAKE_C_FLAGS=-Oz -flto", *more]
        subprocess.run(configure, check=True, capture_output=True, env={**os.environ, **environment})
        subprocess.run(["cmake", "--build", build], check=True, capture_output=True)
        assert ar in (build / "CMakeFiles/f.dir/link.txt").read_text()
        assert subprocess.run([build / "main"]).returncode == 0
