"""The compilers of a build under one row of flags."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from components.core.compiler.clang_programs import BINUTILS
from components.core.formats.toolchain import Toolchain
from components.core.projects.flags.build_variants import BuildVariant
from components.core.projects.flags.builds import (
    BuildSetup,
    compiler_arguments,
    describe_failure,
    names_of_target,
    write_tools,
)
from components.core.projects.flags.rows import FlagRow, newest_rows
from components.platform.errors import UserError
from components.platform.processes.build_tools import log_tail

CONFIG_LOG = """\
checking for library containing pcre2_match_32... no
configure: error: pcre2 library not found
\ttail -v -n \\+0 config.log
==> config.log <==
This file contains any messages produced by compilers while
running configure, to aid debugging if configure makes a mistake.

configure:2963: gcc -version >&5
gcc: error: unrecognized command-line option '-version'
gcc: fatal error: no input files
configure:4835: error: pcre2 library not found
#define PACKAGE_NAME "fdupes"

configure: exit 1
dh_auto_configure: error: ./configure --prefix=/usr returned exit code 1
make: *** [debian/rules:16: build] Error 25
"""
LINK = """\
gcc a.o -lgmock -o app
{cause}
collect2: error: ld returned 1 exit status
make: *** [Makefile:2: app] Error 1
"""
MISSING_DATA = """\
python3 re2/make_unicode_casefold.py > re2/unicode_casefold.cc
Traceback (most recent call last):
  File "re2/unicode.py", line 158, in ReadUnicodeTable
    fil = open(filename, "rb")
FileNotFoundError: [Errno 2] No such file or directory: '/usr/share/unicode/CaseFolding.txt'
make[1]: *** [Makefile:248: re2/unicode_casefold.cc] Error 1
dh_auto_build: error: make -j1 REBUILD_TABLES=1 returned exit code 2
make: *** [debian/rules:12: override_dh_auto_build] Error 25
"""
HEADER = """\
cat: VERSION: No such file or directory
x.c:1:2: error: #error this needs zlib
x.c:2:10: fatal error: zlib.h: No such file or directory
compilation terminated.
"""


@pytest.mark.parametrize(
    ("value", "arguments"),
    [
        ("", []),
        ("gcc", []),
        ("ccache gcc-12 -std=gnu89 '-DTITLE=a row'", ["-std=gnu89", "-DTITLE=a row"]),
        ("env LANG=C /opt/bin/clang -m32", ["-m32"]),
        ("distcc", []),
    ],
)
def test_options_of_the_users_compiler_are_kept(
    monkeypatch: pytest.MonkeyPatch, value: str, arguments: list[str]
) -> None:
    monkeypatch.setenv("CC", value)
    assert [*compiler_arguments("CC")] == arguments


@pytest.mark.parametrize(
    ("value", "problem"), [("gcc '-DA", "cannot be read: No closing quotation"), ("-m32", "names no compiler")]
)
def test_value_that_is_no_command_of_a_compiler_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: str, problem: str
) -> None:
    monkeypatch.setenv("CC", value)
    with pytest.raises(UserError, match=problem):
        compiler_arguments("CC")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (CONFIG_LOG, "configure: error: pcre2 library not found"),
        (LINK.format(cause="/usr/bin/ld: cannot find -lgmock"), "/usr/bin/ld: cannot find -lgmock"),
        (
            LINK.format(cause="a.c:(.text+0x5): undefined reference to `f'"),
            "a.c:(.text+0x5): undefined reference to `f'",
        ),
        (LINK.format(cause=""), "collect2: error: ld returned 1 exit status"),
        (MISSING_DATA, "FileNotFoundError: [Errno 2] No such file or directory: '/usr/share/unicode/CaseFolding.txt'"),
        (HEADER, "x.c:2:10: fatal error: zlib.h: No such file or directory"),
        ("make: *** No rule to make target 'alll'.  Stop.\n", "make: *** No rule to make target 'alll'.  Stop."),
        ("sh: 1: mkae: not found\n", "sh: 1: mkae: not found"),
        ("cc -c x.c\nmake: *** [Makefile:2: x.o] Error 1\n", "make: *** [Makefile:2: x.o] Error 1"),
        ("meson.build:5:0: ERROR: Dependency not found\nerror: 1\n", "meson.build:5:0: ERROR: Dependency not found"),
        ("$ sh -c 'cat error: '\nall is well\n", "the build, make, ends with status 2:"),
    ],
)
def test_reason_is_the_cause_and_no_consequence(tmp_path: Path, output: str, reason: str) -> None:
    log = tmp_path / "log"
    log.write_text(f"$ make\n{output}")
    assert describe_failure(UserError(f"the build, make, ends with status 2:\n{log_tail(log)}")) == reason


def test_cause_far_from_the_end_of_the_log_is_shown_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    cause = "/usr/bin/ld: cannot find -lgmock"
    log.write_text("\n".join([cause, *map(str, range(100))]))
    assert log_tail(log).splitlines() == [cause, *map(str, range(89, 100))]
    log.write_text("\n".join(["1", cause, "2"]))
    assert log_tail(log).splitlines() == ["1", cause, "2"]


def test_end_of_a_log_that_is_cut_off_within_another_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("make\n==> config.log <==\nthe last line\n")
    assert log_tail(log).endswith("the last line")


def test_objects_of_a_newer_clang_are_read_by_its_own_binutils(tmp_path: Path) -> None:
    default = {name: Path("/usr/lib/llvm-19/bin") / f"llvm-{name}" for name in BINUTILS}
    newer = BuildVariant("newest", Path("/usr/bin/clang-22"), ["-flto"])
    assert newer.binutils(default) == {name: Path("/usr/lib/llvm-22/bin") / f"llvm-{name}" for name in BINUTILS}
    assert BuildVariant("own", tmp_path / "clang", []).binutils(default) == default
    (tmp_path / "tools").mkdir()
    write_tools(tmp_path / "tools", newer, BuildSetup(tmp_path, tmp_path, 1, default))
    assert "llvm-22" in (tmp_path / "tools/nm").read_text()


def test_a_clang_without_binutils_is_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = Toolchain(tmp_path, "release", "19.1.7", "x86_64-pc-linux-gnu", {}, {})
    assert [row.program for row in newest_rows(FlagRow("lto", ""), release)] == [Path("/usr/bin/clang-22")]
    for name in ("clang-22", "ld.lld-22"):
        (tmp_path / name).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert newest_rows(FlagRow("lto", ""), release) == []


def test_compilers_name_the_target_as_the_users_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CC", raising=False)
    clang = Path("/usr/lib/llvm-19/bin/clang")
    write_tools(tmp_path, BuildVariant("stock", clang, []), BuildSetup(tmp_path, tmp_path, 1, {}))
    for option in ("-dumpmachine", "-print-multiarch"):
        own = subprocess.check_output(["gcc", option])
        assert subprocess.check_output([tmp_path / "clang", option]) == own
    assert names_of_target(clang)["-dumpmachine"] == "x86_64-pc-linux-gnu"
