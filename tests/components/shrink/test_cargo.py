"""What counts of a tree that Cargo builds in, and hard links; make does what Cargo does."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from components.core.formats.toolchain import Toolchain
from components.core.projects.flags.build_variants import BuildVariant
from components.core.projects.flags.builds import BuildSetup, write_tools
from components.core.projects.flags.rows import FlagRow
from components.core.projects.source_tree import SourceTree
from components.shrink.builds.build import UserBuild
from components.shrink.checks import Checks
from components.shrink.rows import PROGRAM
from components.shrink.step import shrink
from components.shrink.trials import ShrinkConfig
from components.shrink.types import ShrinkReport

pytestmark = pytest.mark.unit
CLANG = Path("/usr/bin/clang-19")
LLVM = Path("/usr/lib/llvm-19/bin")
ROW = replace(PROGRAM, compilers=("stock",), own_options=())
GCC = FlagRow("gcc-Os", "gcc", ("-Os", "-flto=auto"), ("-flto=auto",), compilers=("gcc",), program=Path("/usr/bin/gcc"))
SOURCES = {
    "app.c": '#include <stdio.h>\nint unused(int x) { return x + 7; }\nint main(void) { return puts("app") < 0; }\n',
    "mac.c": "int __rustc_proc_macro_decls_0af3__ = 1;\n",
    "Makefile": """
OUT = target/release
CC = cc
all: $(OUT)/app
$(OUT)/app: app.c mac.c
\tmkdir -p $(OUT)/deps $(OUT)/build/app-1
\techo '{}' > target/.rustc_info.json
\t$(CC) -c app.c -o app.o
\trm -f libapp.a
\t$(AR) rcs libapp.a app.o
\t$(CC) $(LINKER) libapp.a -o $(OUT)/build/app-1/build_script_build-1
\tln $(OUT)/build/app-1/build_script_build-1 $(OUT)/build/app-1/build-script-build
\t$(CC) -shared -fPIC mac.c -o $(OUT)/deps/libmac-1.so
\t$(CC) $(LINKER) libapp.a -o $(OUT)/deps/app-1
\tln $(OUT)/deps/app-1 $(OUT)/app
""",
}


def shrink_by(row: FlagRow, source: Path, release: Toolchain) -> ShrinkReport:
    builds, output = [UserBuild(SourceTree(source), ("make",))], source.parent / "out"
    output.mkdir()
    return shrink(builds, release, ShrinkConfig([row], Checks(timeout_s=60.0)), output, output)


def test_hard_links_count_once_and_tools_of_cargo_do_not(source: Path, release: Toolchain, tmp_path: Path) -> None:
    report = shrink_by(ROW, source, release)
    for build in report.builds:
        assert list(build.files) == ["target/release/app"] and not build.failure
    assert report.chosen == "program"
    app, other = (tmp_path / "out/files/target/release" / name for name in ("app", "deps/app-1"))
    assert app.stat().st_ino == other.stat().st_ino
    assert sorted(path.name for path in (tmp_path / "out/files").rglob("*") if path.is_file()) == ["app", "app-1"]
    assert subprocess.check_output([app], text=True) == "app\n"


def test_rows_of_gcc_make_archives(source: Path, release: Toolchain) -> None:
    """gcc-ar runs the `ar` that it finds in PATH, where the compilers of the row are first."""
    assert [build.failure for build in shrink_by(GCC, source, release).builds] == ["", ""]


def test_build_directory_of_cargo_is_not_copied(tmp_path: Path) -> None:
    for name in ("target/release", "src"):
        (tmp_path / "tree" / name).mkdir(parents=True)
    (tmp_path / "tree/target/.rustc_info.json").write_text("{}")
    SourceTree(tmp_path / "tree").copy(tmp_path / "copy")
    assert [path.name for path in (tmp_path / "copy").iterdir()] == ["src"]


def test_linker_is_the_compilers_own_where_a_build_names_another_directory(tmp_path: Path) -> None:
    """rustc passes -B with a directory of its own lld, which has other options."""
    for name in ("tools", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "other/ld.lld").write_text("#!/bin/sh\necho 'unknown argument' >&2\nexit 1\n")
    (tmp_path / "other/ld.lld").chmod(0o755)
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    setup = BuildSetup(tmp_path / "work", tmp_path / "cache", 1, {"ar": LLVM / "llvm-ar"})
    variant = BuildVariant("stock", CLANG, list(ROW.compile_flags), ROW.link_flags)
    environment = write_tools(tmp_path / "tools", variant, setup)
    command = [environment["CC"], "-B", str(tmp_path / "other"), "-fuse-ld=lld", "main.c", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run([*command, "-nostdlib", "-r"], cwd=tmp_path, check=True)
