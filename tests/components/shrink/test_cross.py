"""Builds for another processor: riscv64 by the stock clang, whose programs QEMU runs, in place of the user's gcc."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from components.core.formats.toolchain import Toolchain
from components.core.projects.cross_compilers import find_cross_compilers, native_machine
from components.core.projects.flags.builds import BuildSetup
from components.core.projects.source_tree import SourceTree
from components.platform.errors import UserError
from components.shrink.builds.build import Builder, UserBuild
from components.shrink.checks import Checks
from components.shrink.rows import PROGRAM
from components.shrink.step import shrink
from components.shrink.targets import Target
from components.shrink.trials import ShrinkConfig, Trials
from components.shrink.types import ShrinkReport

pytestmark = pytest.mark.unit
GCC, CLANG, QEMU = "riscv64-linux-gnu-gcc", "clang-19", "qemu-riscv64-static"
needs_gcc = pytest.mark.skipif(not shutil.which(GCC) or not shutil.which(QEMU), reason="no gcc or QEMU for riscv64")
ROW = replace(PROGRAM, compilers=("stock",), own_options=())
MAKEFILE = """
CC = $(CROSS_COMPILE)gcc
AR = ar
all: app
table: table.c
\tgcc -O2 $< -o $@
table.h: table
\t./table > $@
libsum.a: sum.o
\t$(AR) rcs $@ $^
app: main.o libsum.a
\t$(CC) -O2 $^ -o $@
main.o: table.h
%.o: %.c
\t$(CC) -O2 -c $< -o $@
"""
SOURCES = {
    "Makefile": MAKEFILE,
    "table.c": '#include <stdio.h>\nint main(void) { return printf("#define TABLE 1, 2, 39\\n") < 0; }\n',
    "sum.c": "int sum(const int *x, int n) { int s = 0; while (n--) s += x[n]; return s; }\nint f(void) { return 1; }",
    "main.c": """
#include <stdio.h>
#include "table.h"
int sum(const int *, int);
int main(int argc, char **argv) {
  int values[] = {TABLE};
  return printf("%d %s\\n", sum(values, 3), argc > 1 ? argv[1] : "") < 0;
}
""",
}
Run = Callable[..., ShrinkReport]


@pytest.fixture
def run(source: Path, release: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Shrink into tmp_path/out."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for name in ("CC", "CXX", "AR", "CROSS_COMPILE"):
        monkeypatch.delenv(name, raising=False)

    def run(*command: str, check: str = "") -> ShrinkReport:
        builds = [UserBuild(SourceTree(source), command)]
        (tmp_path / "out").mkdir()
        return shrink(builds, release, ShrinkConfig([ROW], Checks(check)), tmp_path / "out", tmp_path / "out")

    return run


def output(program: Path) -> str:
    return subprocess.check_output([QEMU, "-L", "/usr/riscv64-linux-gnu", program], text=True)


@needs_gcc
def test_build_that_names_a_cross_compiler_is_built_for_its_processor(run: Run, source: Path, tmp_path: Path) -> None:
    """What the native compiler makes is a tool of the build: it is neither delivered nor built by another compiler."""
    report = run("make", "CROSS_COMPILE=riscv64-linux-gnu-")
    own, program = report.builds
    assert report.chosen == "program" and list(own.files) == list(program.files) == ["app"]
    assert program.loaded < own.loaded
    assert report.checked.endswith(f"what yours do under {QEMU}")
    assert output(tmp_path / "out/files/app") == "42 \n"
    # The lines of the result build it again.
    copy = shutil.copytree(source, tmp_path / "again")
    shell = f"{program.build}\n{report.rebuild}"
    subprocess.run(["sh", "-ec", shell], cwd=copy, check=True)
    assert (copy / "app").read_bytes() == (tmp_path / "out/files/app").read_bytes()
    comment = subprocess.check_output(["readelf", "-p", ".comment", copy / "table"], text=True)
    assert "clang" not in comment


@needs_gcc
def test_compiler_of_the_environment_may_have_a_path_and_options(
    run: Run, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests of the build, which cannot run here, are not its check."""
    check = "check: app\n\t./app | grep -q 42 || { echo FAIL: app; false; }\n"
    (source / "Makefile").write_text(MAKEFILE.replace("CC = $(CROSS_COMPILE)gcc\n", "") + check)
    monkeypatch.setenv("CC", f"{shutil.which(GCC)} -DEXTRA -march=rv64gc")
    report = run("make")
    assert report.chosen == "program"
    assert "CC='riscv64-linux-gnu-gcc -DEXTRA -march=rv64gc'" in report.builds[1].build
    if not Path("/proc/sys/fs/binfmt_misc/qemu-riscv64").exists():
        assert "another processor" in report.checked
    assert output(tmp_path / "out/files/app") == "42 \n"


@needs_gcc
def test_programs_without_an_emulator_are_said_to_be_unchecked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    which = shutil.which
    monkeypatch.setattr(shutil, "which", lambda name, **more: None if "qemu" in name else which(name, **more))
    report = run("make", f"CC={GCC}")
    assert report.chosen == "program" and "riscv64" in report.checked


@pytest.mark.parametrize("known", [pytest.param(True, marks=needs_gcc), False])
def test_release_clang_without_the_processor_is_named(run: Run, source: Path, tmp_path: Path, known: bool) -> None:
    """By gcc, and by a clang that compiles for it under its own name."""
    clang = tmp_path / "clang/bin/clang"
    clang.unlink()
    clang.write_text("#!/bin/sh\necho \"error: unable to create target: 'none'\" >&2\nexit 1\n")
    clang.chmod(0o755)
    command = ["make", f"CC={GCC}"]
    if not known:
        link = "-nostdlib -Wl,-e,main -fuse-ld=lld"
        (source / "app.c").write_text("int main(void) { return 0; }")
        command = [CLANG, "--target=s390x-linux-gnu", *link.split(), "app.c", "-o", "app"]
    with pytest.raises(UserError) as raised:
        run(*command)
    assert f"does not compile for {'riscv64-linux-gnu' if known else 's390x'}" in raised.value.problem
    assert "--targets all" in raised.value.remedy


def test_cross_compilers_are_those_for_other_processors_with_linux(tmp_path: Path) -> None:
    for name, triple in (
        ("armv7-linux-gnueabihf-gcc", "armv7-linux-gnueabihf"),
        ("mips-sde-elf-gcc", "mips-sde-elf"),
        ("afl-gcc", "x86_64-linux-gnu"),
        ("x86_64-linux-gnu-gcc-12", "x86_64-linux-gnu"),
        ("s390x-vendor-linux-gnu-gcc-9.1", "s390x-vendor-linux-gnu"),
    ):
        (tmp_path / name).write_text(
            "#!/bin/sh\ncase $* in\n-dumpmachine) echo TRIPLE ;;\n"
            "-Q*) printf '  -march=  armv7-a+fp\\n  -mfpu=  auto\\n  -mthumb  [enabled]\\n' ;;\n"
            "-dM*) echo '#define __ARM_ARCH_7A__ 1' ;;\n-print-sysroot) echo /opt/root ;;\n"
            "-print-libgcc*) echo /opt/lib/gcc/TRIPLE/9/libgcc.a ;;\nesac\n".replace("TRIPLE", triple)
        )
        (tmp_path / name).chmod(0o755)
    found = {one.prefix: one for one in find_cross_compilers(f"{tmp_path}{os.pathsep}/nowhere")}
    assert set(found) == {"armv7-linux-gnueabihf-", "s390x-vendor-linux-gnu-"} and native_machine()
    # The processors are those that gcc compiles for: without NEON, which LLVM assumes.
    assert found["armv7-linux-gnueabihf-"].clang_options == (
        "--target=armv7a-linux-gnueabihf",
        "--gcc-install-dir=/opt/lib/gcc/armv7-linux-gnueabihf/9",
        "--sysroot=/opt/root",
        "-mthumb",
        "-mfpu=vfpv3-d16",
    )
    assert found["s390x-vendor-linux-gnu-"].machine == 22


def test_decisions_are_searched_for_this_machine_only(
    release: Toolchain, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Also not where a clang of the user compiles for another processor under its own name."""
    setup = BuildSetup(tmp_path, tmp_path, 1, {})
    build = UserBuild(SourceTree(tmp_path), ("make",))
    builder = Builder(build, setup, (), tmp_path, target=Target(processor="riscv64"))
    trials = Trials(builder, tmp_path, release, tmp_path, tmp_path, ShrinkConfig([], Checks()))
    trials._add_searched(PROGRAM, 1)
    assert "no plan" in capfd.readouterr().out
    assert trials.done == []
