"""`mlgo shrink`: real builds by the user's compilers and by a release clang with the pretrained policy."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.core.formats.toolchain import Toolchain
from components.shrink.builds.build import BuiltFiles
from components.shrink.builds.kept_files import LinkedFile
from components.shrink.rows import rivals
from components.shrink.types import FileSizes
from tests.support.commands import run_command

SOURCES = {
    "main.cc": """
#include "table.h"
#include <cstdio>
int main() {
  Table table;
  for (int i = 0; i < 20; ++i) table.add("row" + std::to_string(i % 7), i * i);
  std::printf("%d\\n", table.sum("row1"));
}
""",
    "table.cc": """
#include "table.h"
void Table::add(const std::string &name, int value) { rows[name].push_back(value); }
int Table::sum(const std::string &name) const { int all = 0; for (int x : rows.at(name)) all += x; return all; }
extern "C" int table_version() { return 7; }
static int helper(int x) { return x * 3; }
extern "C" int table_unused(int x) { return helper(x) + helper(x + 1); }
""",
    "table.h": """
#include <map>
#include <string>
#include <vector>
struct Table {
  void add(const std::string &name, int value);
  int sum(const std::string &name) const;
  std::map<std::string, std::vector<int>> rows;
};
""",
    "Makefile": """
CXX ?= g++
all: app libtable.so
app: main.o table.o
\t$(CXX) -O2 $^ -o $@
libtable.so: table.cc
\t$(CXX) -O2 -shared -fPIC $< -o $@
%.o: %.cc table.h
\t$(CXX) -O2 -c $< -o $@
""",
}
CMAKE = """
cmake_minimum_required(VERSION 3.16)
project(table CXX)
add_library(rows STATIC table.cc)
add_executable(app main.cc)
target_link_libraries(app rows)
"""
ODD_MAKEFILE = """
all: app
offsets.h: offsets.c
\tgcc -O2 -S $< -o - | sed -n 's/^->\\([A-Z]*\\) [$$]*\\([0-9]*\\).*/#define \\1 \\2/p' > $@
\tgrep ROWS $@
main.o: main.cc offsets.h
%.o: %.cc
\tg++ -O2 -Wa,-mtune=generic64 -Wa,--noexecstack,-mtune=generic64 -c $< -o $@
app: main.o table.o more.o
\tld -r -o both.o main.o table.o
\tgcc -nostdlib -r -o again.o both.o
\trm -f libmore.a
\tgcc-ar qc libmore.a more.o
\tstrip -g libmore.a
\tg++ again.o -L. -lmore -Wl,-O1,--hash-size=31,--as-needed -o $@
"""
Shrink = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def shrink(pretrained_release: Path, source: Path, tmp_path: Path) -> Shrink:
    """A function that shrinks `source` with options, and fails unless the exit status is `status`."""

    def run(*arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        options = ["--source", source, "--release-toolchain", pretrained_release, "--output", tmp_path / "out"]
        done = run_command("components.shrink", *options, "--no-other-compilers", *arguments, timeout=600)
        assert done.returncode == status, done.stderr
        return done

    return run


def rebuild(output: Path, tree: Path) -> None:
    """Build `tree` by the shell lines of a result, which make the delivered app again."""
    subprocess.run(["sh", "-ec", shell_lines(output)], cwd=tree, check=True)
    assert (tree / "app").read_bytes() == (output / "files/app").read_bytes()


def shell_lines(output: Path) -> str:
    return (output / "summary.md").read_text().partition("```shell\n")[2].partition("```")[0]


def result(tmp_path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((tmp_path / "out/shrink.json").read_text())
    return document


def test_the_smallest_build_is_delivered_and_its_compilers_build_it_again(
    source: Path, shrink: Shrink, tmp_path: Path
) -> None:
    subprocess.run(["clang-19", "-x", "c", "-c", "/dev/null", "-o", source / "main.o"], check=True)
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    done = shrink("--check", "./app")
    shrunk = result(tmp_path)
    assert [build["name"] for build in shrunk["builds"]] == ["own", "program", "objects", "stock"]
    own, program, _, stock = shrunk["builds"]
    assert not any(build["failure"] for build in shrunk["builds"])
    assert program["files"].keys() == own["files"].keys() == {"app", "libtable.so"}
    assert program["files"]["app"]["stripped"] < own["files"]["app"]["stripped"]
    assert shrunk["chosen"] == min(shrunk["builds"], key=lambda build: build["loaded"])["name"] != "own"
    assert shrunk["reduction_percent"] > 5 and shrunk["command"] == shrunk["rebuild"] == "make -j$JOBS"
    assert program["stripped"] < stock["stripped"] < own["stripped"]
    assert "Stock clang" in done.stdout and "./app passes" in done.stdout
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before
    # What was delivered works and exports what it did; the shell lines of the summary make it again.
    files = tmp_path / "out/files"
    assert subprocess.check_output([files / "app"], text=True) == "290\n"  # 1 + 64 + 225
    exported = subprocess.check_output(["nm", "-D", "--defined-only", files / "libtable.so"], text=True)
    assert "table_version" in exported and "table_unused" in exported
    rebuild(tmp_path / "out", shutil.copytree(source, tmp_path / "again", ignore=shutil.ignore_patterns("*.o")))
    assert "delivered" in done.stdout and "% smaller, " in done.stdout
    # GNU ld pads to pages, so the file shrinks more than what is loaded.
    own, chosen = (
        next(one for one in result(tmp_path)["builds"] if one["name"] == name) for name in ("own", "program")
    )
    assert 0 < own["loaded"] < own["stripped"] and 0 < chosen["loaded"] < chosen["stripped"]
    assert f"{own['loaded']:,} → {chosen['loaded']:,} bytes loaded" in done.stdout and "padding" in done.stdout
    assert not list(Path(tmp_path / "out").glob(".*"))


def test_cmake_takes_compilers_and_archiver(source: Path, shrink: Shrink, tmp_path: Path) -> None:
    (source / "Makefile").unlink()
    (source / "CMakeLists.txt").write_text(CMAKE)
    done = shrink()
    assert [build["failure"] for build in result(tmp_path)["builds"]] == [""] * 4
    assert result(tmp_path)["chosen"] != "own" and "cmake -S" in done.stdout


def test_the_build_has_the_systems_python(shrink: Shrink, tmp_path: Path) -> None:
    outside = f'case "$(command -v python3)" in {sys.prefix}/*) exit 1 ;; esac'
    shrink("--", "sh", "-ec", f'{outside}; test -z "$VIRTUAL_ENV"; make')


def test_options_that_clang_lacks_are_dropped(source: Path, shrink: Shrink, tmp_path: Path) -> None:
    gcc = "-O2 -ftree-loop-vectorize -fno-tree-slsr -fanalyzer -fdiagnostics-color=always -flto=2"
    (source / "Makefile").write_text(SOURCES["Makefile"].replace("-O2", gcc))
    done = shrink()
    assert not any(build["failure"] for build in result(tmp_path)["builds"])
    assert "-ftree-loop-vectorize" in done.stdout
    assert done.stdout.count("again without options") == 1  # the other rows need no attempt with them
    script = (tmp_path / "out/compilers/clang++").read_text()
    assert "-ftree-loop-vectorize|-fno-tree-slsr|-fanalyzer)" in script
    assert result(tmp_path)["builds"][1]["dropped"] == ["-ftree-loop-vectorize", "-fno-tree-slsr", "-fanalyzer"]
    assert any("-fanalyzer" in note for note in result(tmp_path)["notes"])


def test_delivered_programs_find_their_libraries_and_nothing_in_the_builds_directory(
    source: Path, shrink: Shrink, tmp_path: Path
) -> None:
    (source / "Makefile").unlink()
    shared = CMAKE.replace("STATIC", "SHARED").replace("table.cc)", "table.cc)\nset(CMAKE_BUILD_RPATH /usr/lib/other)")
    (source / "CMakeLists.txt").write_text(shared)
    shrink("--", "sh", "-c", "cmake -B 'a b' && cmake --build 'a b'")
    assert result(tmp_path)["chosen"] != "own"
    program = tmp_path / "out/files/a b/app"
    assert subprocess.check_output([program], text=True) == "290\n"
    dynamic = subprocess.check_output(["readelf", "-d", program], text=True)
    assert "mlgo-shrink-" not in dynamic and "$ORIGIN" in dynamic
    assert not any("search for libraries" in note for note in result(tmp_path)["notes"])


def test_tree_that_is_built_already_is_named(source: Path, shrink: Shrink, tmp_path: Path) -> None:
    (source / "Makefile").write_text("app: main.cc\n\t$(CXX) main.cc table.cc -o app\n")
    subprocess.run(["make", "-C", source], check=True, capture_output=True)
    done = shrink(status=1)
    assert "builds nothing" in done.stderr
    assert "such as app" in done.stderr and "clean" in done.stderr


def test_static_libraries_alone_are_compiled_file_by_file(source: Path, shrink: Shrink, tmp_path: Path) -> None:
    (source / "Makefile").write_text("all:\n\t$(CXX) -O2 -c table.cc\n\tar rc libtable.a table.o\n")
    shrink()
    shrunk = result(tmp_path)
    assert [build["name"] for build in shrunk["builds"]] == ["own", "objects", "stock"]
    assert shrunk["chosen"] == "objects"
    assert shrunk["kinds"] == {"libtable.a": "static library"}


def test_static_programs_of_gcc_are_measured(source: Path, shrink: Shrink, tmp_path: Path) -> None:
    """LLVM's strip refuses the static program of GNU ld, and no strip can read the last file."""
    program = "app: main.o table.o\n\t$(CXX) -static -O2 $^ -o $@\n\t(head -c 64 $@; yes) | head -c 9000 >damaged\n"
    rule = "app: main.o table.o\n\t$(CXX) -O2 $^ -o $@\n"
    (source / "Makefile").write_text(SOURCES["Makefile"].replace(rule, program))
    done = shrink("--no-compare-stock", "--", "make", "app")
    assert "left out: " in done.stdout and "damaged" in done.stdout
    assert result(tmp_path)["builds"][0]["files"].keys() == {"app"}
    assert result(tmp_path)["chosen"] != "own" and subprocess.check_output([tmp_path / "out/files/app"]) == b"290\n"


def test_unique_symbols_of_gcc_are_noted(source: Path, shrink: Shrink, tmp_path: Path) -> None:
    (source / "table.cc").write_text(
        SOURCES["table.cc"] + "inline int &unique() { static int n; return n; }\n"
        'extern "C" int use() { return ++unique(); }\n'
    )
    done = shrink("--", "make", "CXX=g++")
    assert any("gcc only" in note for note in result(tmp_path)["notes"])
    assert "Note: " in done.stdout


def test_build_without_openmp_is_not_delivered(source: Path, shrink: Shrink, tmp_path: Path) -> None:
    """A configure step that looks for OpenMP does not find it where clang's library is missing."""
    openmp = "-O2 $(if $(findstring compilers,$(CXX)),,-fopenmp)"
    (source / "Makefile").write_text(
        SOURCES["Makefile"].replace("-O2", openmp).replace("all: app libtable.so", "all: app")
    )
    loop = "\n#pragma omp parallel for\n  for (int i = 0;"
    (source / "main.cc").write_text(SOURCES["main.cc"].replace("\n  for (int i = 0;", loop))
    shrink("--no-compare-stock", "--", "make", "app")
    _, program, objects = result(tmp_path)["builds"]
    assert program["failure"] == objects["failure"] and "libomp-19-dev" in program["failure"]


def test_library_that_is_no_longer_used_is_noted(source: Path, shrink: Shrink, tmp_path: Path) -> None:
    found = "$(if $(findstring compilers,$(CXX)),table.o,-L. -ltable)"
    (source / "Makefile").write_text(SOURCES["Makefile"].replace("$^ -o", f"main.o {found} -o") + "app: libtable.so\n")
    shrink("--no-compare-stock", "--measure", "file")
    assert result(tmp_path)["chosen"] != "own"
    assert any("libtable.so any more" in note for note in result(tmp_path)["notes"])


def test_programs_are_one_module_where_the_build_wants_fat_objects(
    source: Path, shrink: Shrink, tmp_path: Path
) -> None:
    """Flags of dpkg-buildflags with LTO."""
    sizes = []
    for flags in ("-O2", "-O2 -flto=auto -ffat-lto-objects"):
        (source / "Makefile").write_text(SOURCES["Makefile"].replace("-O2", flags))
        shrink("--no-compare-stock", "--", "make", "app")
        sizes.append(result(tmp_path)["builds"][1]["stripped"])
    assert sizes[0] == sizes[1] and not result(tmp_path)["builds"][1]["dropped"]


def test_options_of_the_users_compilers_stay(
    source: Path, shrink: Shrink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "env LANG=C g++ -std=gnu++17 '-DTITLE=\"a row\"'")
    (source / "main.cc").write_text(
        SOURCES["main.cc"] + "static_assert(__cplusplus == 201703L && sizeof(TITLE) == 6);\n"
    )
    shrink("--no-compare-stock")
    assert [build["failure"] for build in result(tmp_path)["builds"]] == [""] * 3
    rebuild(tmp_path / "out", source)


def test_tools_that_do_not_know_bitcode_get_along_with_each_build(source: Path, shrink: Shrink, tmp_path: Path) -> None:
    """The build reads assembly, calls ld and gcc's ar, and passes options to them that LLVM's do not have."""
    (source / "Makefile").write_text(ODD_MAKEFILE)
    (source / "offsets.c").write_text('void f(void) { __asm__ volatile("\\n->ROWS %0" :: "i"(sizeof(long) - 1)); }\n')
    (source / "main.cc").write_text(
        SOURCES["main.cc"]
        .replace("% 7", "% ROWS")
        .replace("#include <cstdio>", '#include <cstdio>\n#include "offsets.h"')
    )
    (source / "more.cc").write_text('extern "C" int more() { return 1; }\n')
    shrink("--check", "./app")
    shrunk = result(tmp_path)
    assert [build["failure"] for build in shrunk["builds"]] == [""] * 4 and shrunk["chosen"] != "own"
    program, objects = shrunk["builds"][1:3]
    assert program["dropped"] == ["-Wl,--hash-size=31"]  # LTO's compiles run no assembler
    assert set(objects["dropped"]) == {"-Wa,-mtune=generic64", "-Wl,--hash-size=31"}
    assert subprocess.check_output([tmp_path / "out/files/app"], text=True) == "290\n"
    rebuild(tmp_path / "out", source)


def test_library_with_symbol_versions_is_delivered(source: Path, shrink: Shrink, tmp_path: Path) -> None:
    """GNU ld exports the versions, too, and accepts a script that names a symbol that is not there."""
    (source / "table.map").write_text("V1 { global: table_*; missing; local: *; };\nV2 { global: also_missing; } V1;\n")
    (source / "Makefile").write_text(
        "all:\n\t$(CXX) -O2 -shared -fPIC table.cc -Wl,--version-script=table.map -o t.so\n"
    )
    shrink("--no-compare-stock", "--", "make", "CXX=g++")
    assert not any(build["failure"] for build in result(tmp_path)["builds"])
    exported = subprocess.check_output(["nm", "-D", "--defined-only", tmp_path / "out/files/t.so"], text=True)
    assert "table_unused@@V1" in exported and result(tmp_path)["chosen"] != "own"


def test_another_build_is_found_where_the_usual_one_fails(source: Path, shrink: Shrink, tmp_path: Path) -> None:
    """Patches of Debian want its own rules, or a new configure script; this Makefile makes nothing."""
    (source / "debian").mkdir()
    (source / "Makefile").rename(source / "own.mk")
    (source / "Makefile").write_text("all:\n")
    (source / "debian/rules").write_text("#!/usr/bin/make -f\nbuild:\n\t$(MAKE) -f own.mk\n")
    (source / "debian/rules").chmod(0o755)
    done = shrink("--no-compare-stock")
    assert "no program" in done.stdout
    assert result(tmp_path)["command"] == "debian/rules build" and result(tmp_path)["chosen"] != "own"
    (source / "own.mk").write_text("build:\n\tfalse\n")
    done = shrink(status=1)
    assert "error: make" in done.stderr


def test_a_failing_check_falls_back_to_the_next_best(shrink: Shrink, tmp_path: Path) -> None:
    """The check accepts no program that was linked by full LTO."""
    check = "case $CXX$(cat .. 2>/dev/null) in *compilers*) ! grep -q flto $CXX ;; esac"
    shrink("--check", check, "--", "make")
    _, program, objects, _ = result(tmp_path)["builds"]
    assert program["failure"].startswith("the check") and not objects["failure"]
    assert result(tmp_path)["chosen"] == "objects"


def test_other_compilers_of_the_user_are_tried(source: Path, shrink: Shrink, tmp_path: Path) -> None:
    """The check accepts gcc only. The lines of the result build the same file again, with an archive by `ar`, which
    gcc's own runs."""
    makefile = SOURCES["Makefile"].replace("main.o table.o\n", "main.o libtable.a\n")
    (source / "Makefile").write_text(makefile + "libtable.a: table.o\n\tar rc $@ $<\n")
    check = "${CXX:-g++} --version | grep -q 'Free Software'"
    done = shrink("--other-compilers", "--measure", "file", "--check", check, "--", "make")
    builds = {build["name"]: build for build in result(tmp_path)["builds"]}
    assert [*builds] == ["own", "program", "objects", "gcc-Os", "gcc-Oz", "clang-22"]
    assert [name for name, build in builds.items() if not build["failure"]] == ["own", "gcc-Os", "gcc-Oz"]
    chosen = result(tmp_path)["chosen"]
    assert chosen == min(("gcc-Os", "gcc-Oz"), key=lambda name: builds[name]["stripped"])
    assert f"by {chosen}; {check} passes." in done.stdout
    copy = tmp_path / "again"
    shutil.copytree(source, copy)
    subprocess.run(["sh", "-ec", "\n".join(done.stdout.splitlines()[-2:])], cwd=copy, check=True)
    subprocess.run([tmp_path / "out/compilers/g++", "--version"], check=True)
    assert (copy / "app").read_bytes() == (tmp_path / "out/files/app").read_bytes()


def test_speed_of_a_command_is_compared(shrink: Shrink, tmp_path: Path) -> None:
    done = shrink("--no-compare-stock", "--benchmark", "./app | grep 290", "--", "make")
    speed = result(tmp_path)["speed"]
    assert speed["counter"] in ("perf", "callgrind") and speed["time"]["repeats"] == 10
    ratio = speed["delivered_instructions"] / speed["own_instructions"]
    assert 0.5 < ratio < 2 and 0.001 < speed["time"]["stock_s"] < 10
    assert f"; {100 * (ratio - 1):+.1f}% instructions, {speed['time']['change_percent']:+.1f}% time (" in done.stdout
    # Before the other builds.
    done = shrink("--benchmark", "./app; exit 3", "--", "make", status=1)
    assert "build 2" not in done.stdout
    assert "status 3" in done.stderr


@pytest.mark.unit
def test_newer_clang_knows_the_warnings_of_its_row(tmp_path: Path) -> None:
    rows = rivals(Toolchain(tmp_path, "release", "19.1.7", "x86_64-pc-linux-gnu", {}, {}))
    row = next(row for row in rows if row.compilers == ("newest",))
    assert row.program is not None
    command = [str(row.program), *row.compile_flags, "-c", "-x", "c++", "/dev/null", "-o", "/dev/null"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.unit
def test_libraries_that_export_more_have_a_note() -> None:
    def built(*exports: str) -> BuiltFiles:
        program = LinkedFile("program", FileSizes(stripped=2, loaded=2, text=2), frozenset(exports))
        library = replace(program, kind="shared library", weak=frozenset({"inlined"}))
        return BuiltFiles({"app": program, "liba.so": library})

    assert built("api").gained_exports(built("api", "inlined")) == {}
    assert built("api").gained_exports(built("api", "one", "two")) == {"liba.so": 2}


def test_build_that_exports_less_is_not_delivered(source: Path, shrink: Shrink, tmp_path: Path) -> None:
    hiding = "-O2 $(if $(findstring compilers,$(CXX)),-fvisibility=hidden)"
    (source / "Makefile").write_text(SOURCES["Makefile"].replace("-O2", hiding))
    done = shrink("--", "make")
    shrunk = result(tmp_path)
    assert shrunk["chosen"] == "own" and shrunk["reduction_percent"] == 0
    for build in shrunk["builds"][1:]:
        assert build["failure"].startswith("libtable.so no longer exports _ZN5Table3add")
    assert "own build" in done.stdout and "no other" in done.stdout
    assert (tmp_path / "out/files/app").is_file() and not (tmp_path / "out/compilers").exists()


def test_build_that_calls_a_compiler_by_its_path_gets_ours_there(source: Path, shrink: Shrink, tmp_path: Path) -> None:
    path = shutil.which("g++")
    (source / "Makefile").write_text(SOURCES["Makefile"].replace("CXX ?= g++", f"override CXX = {path}"))
    output = tmp_path / 'out "$put'
    (source / "loop").symlink_to("loop")
    # The check links objects of the build, which have bitcode, by the same path.
    check = f"{path} main.o table.o -o checked && ./checked"
    options = ("--no-compare-stock", "--output", str(output), "--check", check, "--", "LANG=C", "make")
    shrink(*options)
    shrunk = json.loads((output / "shrink.json").read_text())
    assert shrunk["chosen"] != "own" and not any(build["failure"] for build in shrunk["builds"])
    # The lines of the summary run the build in the same way, wherever the output is.
    wrapper = output / "compilers/with-compilers"
    assert shell_lines(output).splitlines()[-1] == shlex.join([str(wrapper), "LANG=C", "make"])
    rebuild(output, shutil.copytree(source, tmp_path / "again", symlinks=True))


def test_files_that_stay_as_they_were_are_noted(source: Path, shrink: Shrink, tmp_path: Path) -> None:
    """Only one program is made by a compiler that the build calls by its path."""
    rule = f"\nother: other.c\n\t{shutil.which('gcc')} -O2 $< -o $@\n"
    (source / "Makefile").write_text(SOURCES["Makefile"] + rule)
    (source / "other.c").write_text("int main(void) { return 0; }\n")
    shrink("--no-compare-stock", "--", "make", "app", "other")
    assert result(tmp_path)["chosen"] != "own"
    (note,) = (note for note in result(tmp_path)["notes"] if "your own compilers" in note)
    assert note.startswith("other have the sizes") and "$CC" in note


@pytest.mark.parametrize("path", ["/usr/bin/clang++-19", "/usr/lib/llvm-19/bin/clang++"])
def test_build_that_calls_clang_by_its_path_gets_ours_there(
    source: Path, shrink: Shrink, tmp_path: Path, path: str
) -> None:
    """The release clang compiles where that clang is, and so does the same clang with the row's flags."""
    table = shlex.join([path.replace("++", ""), "-x", "c", "-c", "number.c", "-o", "number.o"])
    makefile = SOURCES["Makefile"].replace("CXX ?= g++", f"override CXX = {path}")
    makefile = makefile.replace("app: main.o table.o", f"number.o: number.c\n\t{table}\napp: main.o table.o number.o")
    (source / "Makefile").write_text(makefile)
    (source / "number.c").write_text("int number(void) { int class = 7; return class; }\n")
    shrink("--check", f"./app && {path} --version")
    own, program, objects, stock = result(tmp_path)["builds"]
    assert not any(build["failure"] for build in result(tmp_path)["builds"])
    assert min(program["stripped"], objects["stripped"]) < stock["stripped"] < own["stripped"]
    rebuild(tmp_path / "out", shutil.copytree(source, tmp_path / "again"))


def test_compilers_of_an_earlier_result_are_not_the_users(
    shrink: Shrink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compilers = tmp_path / "earlier/compilers"
    compilers.mkdir(parents=True)
    (tmp_path / "earlier/shrink.json").write_text("{}")
    monkeypatch.setenv("PATH", f"{compilers}:{os.environ['PATH']}")
    done = shrink("--", "make", status=1)
    assert str(compilers) in done.stderr


def test_build_that_calls_a_compiler_by_its_path_is_named_without_bubblewrap(
    source: Path, shrink: Shrink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shutil.which("g++")
    (source / "Makefile").write_text(SOURCES["Makefile"].replace("CXX ?= g++", f"override CXX = {path}"))
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for program in Path(folder).iterdir():
            if program.name != "bwrap" and not (programs / program.name).exists():
                (programs / program.name).symlink_to(program)
    monkeypatch.setenv("PATH", str(programs))
    done = shrink()
    assert result(tmp_path)["chosen"] == "own" and "bubblewrap" in result(tmp_path)["why"]
    assert "install bubblewrap" in done.stdout and (tmp_path / "out/files/app").is_file()


def test_allowed_flags_are_rows_of_their_own(source: Path, shrink: Shrink, tmp_path: Path) -> None:
    """Hidden visibility drops what the shared library exports, so that only the others are used."""
    shrink("--allow", "hidden", "--allow", "relr", "--no-compare-stock")
    builds = {build["name"]: build for build in result(tmp_path)["builds"]}
    assert list(builds) == ["own", "program", "program-allowed", "objects", "objects-allowed"]
    assert builds["program-allowed"]["failure"].startswith("libtable.so no longer exports")
    assert "hidden, relr" in builds["program-allowed"]["gives"]
    (source / "Makefile").write_text(SOURCES["Makefile"].replace("all: app libtable.so", "all: app"))
    shrink("--allow", "relr", "--allow", "no-build-id", "--no-compare-stock")
    relr = next(build for build in result(tmp_path)["builds"] if build["name"] == "program-allowed")
    assert not relr["failure"] and relr["files"]["app"]["stripped"] > 0
    assert not subprocess.check_output(["readelf", "-n", tmp_path / "out/files/app"]).count(b"Build ID")


def test_nothing_smaller_delivers_the_own_build(source: Path, shrink: Shrink, tmp_path: Path) -> None:
    """The build of the release clang adds a table that the own one does not have."""
    more = "$(if $(findstring compilers,$(CXX)),-DMORE)"
    (source / "Makefile").write_text(SOURCES["Makefile"].replace("-O2", f"-Oz {more}"))
    table = '#ifdef MORE\nextern "C" const char table_more[100000] = "more";\n#endif\n'
    (source / "table.cc").write_text(SOURCES["table.cc"] + table)
    done = shrink()
    assert result(tmp_path)["chosen"] == "own" and "the smallest" in result(tmp_path)["why"]
    assert "own build" in done.stdout


def test_missing_release_clang_is_named(source: Path, tmp_path: Path) -> None:
    done = run_command("components.shrink", "--source", source, "--release-toolchain", tmp_path / "none")
    assert done.returncode != 0 and "none" in done.stderr
