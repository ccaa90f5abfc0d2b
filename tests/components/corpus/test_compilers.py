"""The compilers of `mlgo corpus compilers` build real projects whose build systems set their own flags.

README's commands are run as they stand there. GNU ar, with a plugin of another LLVM version, shows what LLVM's avoids.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from components.core.formats.corpus import load_corpus
from components.corpus.compilers import compilers
from components.corpus.extract_command import extract
from components.evaluation.projects.commands import compare_builds
from components.platform.errors import UserError

ROOT = Path(__file__).parents[3]
LLVM = Path("/usr/lib/llvm-19/bin")
SOURCES = {
    "library.c": "static int twice(int a) { return a * 2; }\nint library(int a) { return twice(a) + 1; }\n",
    "text.cpp": '#include <string>\nextern "C" int size(int a) { return (int)std::to_string(a).size(); }\n',
    "main.c": "int library(int);\nint size(int);\nint main(int n, char **a) { return library(n) + size(n); }\n",
}
CMAKE = """cmake_minimum_required(VERSION 3.20)
{before}
project(own LANGUAGES C CXX)
{after}
add_library(library STATIC library.c text.cpp)
add_executable(program main.c)
target_link_libraries(program library)
set_target_properties(program PROPERTIES LINKER_LANGUAGE CXX)
{end}
"""
PROJECTS = {
    "default build type": {
        "after": "if(NOT CMAKE_BUILD_TYPE)\nset(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING type FORCE)\nendif()"
    },
    "fixed build type": {"before": "set(CMAKE_BUILD_TYPE RelWithDebInfo)"},
    "refuses None": {
        "after": "if(NOT CMAKE_BUILD_TYPE MATCHES '^(Debug|Release|RelWithDebInfo|MinSizeRel)$')\n"
        "message(FATAL_ERROR 'unknown build type')\nendif()".replace("'", '"')
    },
    "own flags of the build type": {"after": 'set(CMAKE_C_FLAGS_RELEASE "-O3")\nset(CMAKE_CXX_FLAGS_RELEASE "-O3")'},
    "drops the user's flags": {"after": 'set(CMAKE_C_FLAGS "-O2 -Wall")\nset(CMAKE_CXX_FLAGS "-O2 -Wall")'},
    "options of a target": {
        "end": "target_compile_options(library PRIVATE -O3)\ntarget_compile_options(program PRIVATE -O1)"
    },
    "options of a file": {
        "end": 'set_source_files_properties(library.c main.c text.cpp PROPERTIES COMPILE_OPTIONS "-Ofast")'
    },
    "LTO": {"after": "set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ON)"},
    "warnings are errors, in links too": {
        "after": "add_compile_options(-Wall -Werror)\nadd_link_options(-Wall -Werror)"
    },
}


def write_sources(directory: Path, **cmake: str) -> Path:
    directory.mkdir()
    lists = CMAKE.format(**{"before": "", "after": "", "end": "", **cmake})
    for name, text in {**SOURCES, "CMakeLists.txt": lists}.items():
        (directory / name).write_text(text)
    return directory


def shell(script: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run commands of a user, whose `mlgo` is this tree's."""
    program = f'mlgo() {{ {shlex.quote(sys.executable)} -m pipelines.cli.main "$@"; }}\n{script}'
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    for name in ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS"):
        environment.pop(name, None)
    command = ["bash", "-eo", "pipefail", "-c", program]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def levels(corpus: Path, *arguments: str) -> list[tuple[str, ...]]:
    """Extract a corpus and return the optimization levels of each module."""
    done = CliRunner().invoke(extract, [*arguments, "--output", str(corpus)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    modules = load_corpus(corpus).modules
    return [tuple(word for word in module.arguments() if word.startswith("-O")) for module in modules]


def make_compilers(output: Path, *more: str) -> Path:
    done = CliRunner().invoke(compilers, ["--output", str(output), *more], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return output


def readme_commands() -> tuple[str, str]:
    """Return README's commands that build a project for a corpus, and those that build it with the release clang."""
    block = re.search(r"^## Your own project\n+```shell\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)[1]
    _setup, rest = block.split("cd YOUR_PROJECT\n")
    build, rest = re.split(r"^mlgo run .*\n", rest, flags=re.M)
    rebuild, _compare = re.split(r"^mlgo evaluation compare-builds .*\n", rest, flags=re.M)
    assert "cmake" in build and "cmake" in rebuild
    return build, rebuild


@pytest.mark.toolchain
@pytest.mark.parametrize("project", PROJECTS)
def test_readme_commands_build_a_corpus_at_oz_whatever_the_project_sets(project: str, tmp_path: Path) -> None:
    write_sources(tmp_path / "project", **PROJECTS[project])
    done = shell(readme_commands()[0], tmp_path / "project")
    assert done.returncode == 0, done.stdout + done.stderr
    database = tmp_path / "project" / "build" / "compile_commands.json"
    assert levels(tmp_path / "corpus", "--compile-commands", str(database)) == [("-Oz",)] * 3
    archiver = re.search(r"^CMAKE_AR:.*=(.*)$", database.with_name("CMakeCache.txt").read_text(), re.M)
    assert Path(archiver[1]).resolve() in (LLVM / "llvm-ar", tmp_path / "project" / "oz" / "llvm-ar")
    assert "warning" not in done.stdout + done.stderr


@pytest.mark.toolchain
def test_readme_commands_without_these_compilers_fail_and_the_remedy_names_them(tmp_path: Path) -> None:
    write_sources(tmp_path / "project", **PROJECTS["default build type"])
    flags = '"-Oz -Xclang -fembed-bitcode=all"'
    script = (
        "cmake -G Ninja -S . -B build -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DCMAKE_C_COMPILER=clang-19"
        f" -DCMAKE_CXX_COMPILER=clang++-19 -DCMAKE_C_FLAGS={flags} -DCMAKE_CXX_FLAGS={flags}\ncmake --build build\n"
        "mlgo corpus extract --compile-commands build/compile_commands.json --cmd-filter '^-Oz$' --output corpus\n"
    )
    done = shell(script, tmp_path / "project")
    assert done.returncode == 1 and "level is -O2" in done.stderr, done.stdout + done.stderr
    message = re.sub(r"\s+", " ", done.stderr)
    assert "RelWithDebInfo -O2" in message and "corpus compilers" in message
    assert "-DCMAKE_C_COMPILER=$PWD/DIR/clang" in message


CONFIGURE = """#!/bin/sh
# As autoconf's: a compile, a link with an archive, and the tools by name.
set -e
echo 'int f(void) { return 0; }' >conftest.c
${CC:-cc} -c -O2 conftest.c && ${AR:-ar} cr conftest.a conftest.o && ${RANLIB:-ranlib} conftest.a
echo 'int f(void); int main(void) { return f(); }' >conftest2.c
${CC:-cc} -O2 conftest2.c conftest.a -o conftest || { echo 'cannot link a static library' >&2; exit 1; }
${NM:-nm} -B conftest.o | grep -q ' T f$' || { echo 'nm lists no symbols' >&2; exit 1; }
rm -f conftest*
printf 'CC = %s\\nCXX = %s\\n' "${CC:-cc}" "${CXX:-c++}" | cat - Makefile.in >Makefile
"""
MAKEFILE = """CFLAGS = -O2 -g
program: main.o liball.a
\t$(CXX) $(CFLAGS) main.o liball.a -o $@
liball.a: library.o text.o
\tar cr $@ library.o text.o
\tranlib $@
main.o: main.c
\tgcc $(CFLAGS) -c main.c -o $@
library.o: library.c
\t$(CC) $(CFLAGS) -c library.c -o $@
text.o: text.cpp
\t$(CXX) $(CFLAGS) -c text.cpp -o $@
"""


@pytest.fixture
def autotools(tmp_path: Path) -> Path:
    """A project with a configure script and a Makefile that names gcc, ar, ranlib and -O2."""
    write_sources(tmp_path / "project")
    (tmp_path / "project" / "configure").write_text(CONFIGURE)
    (tmp_path / "project" / "configure").chmod(0o755)
    (tmp_path / "project" / "Makefile.in").write_text(MAKEFILE)
    return tmp_path / "project"


@pytest.mark.toolchain
def test_static_library_links_although_a_plugin_of_another_llvm_is_installed(autotools: Path, tmp_path: Path) -> None:
    make_compilers(tmp_path / "tools")
    build = "CC=clang CXX=clang++ ./configure\nmake\n./program"
    done = shell(build, autotools, PATH=f"{tmp_path / 'tools'}:{os.environ['PATH']}")
    assert done.returncode == 2 * 1 + 1 + len("1"), done.stdout + done.stderr
    assert levels(tmp_path / "corpus", "--input", str(autotools), "--input-type", "directory") == [("-Oz",)] * 3


@pytest.mark.toolchain
def test_gnu_ar_writes_no_index_with_a_plugin_of_another_llvm(autotools: Path) -> None:
    """The reason for LLVM's binutils: needs the package llvm-14-linker-tools (docker/requirements/apt-test.txt)."""
    (plugin,) = Path("/usr/lib/bfd-plugins").glob("LLVMgold-14.so")
    assert plugin.exists()
    compiler = "clang-19 -Oz -Xclang -fembed-bitcode=all"
    done = shell(
        f"{compiler} -c library.c -o library.o && /usr/bin/ar cr l.a library.o && /usr/bin/nm -s l.a", autotools
    )
    assert "Archive index" not in done.stdout, (
        "binutils read such objects now: mlgo corpus compilers need not replace them"
    )


def stand_in_release(project: Path, log: Path) -> None:
    """Make stock clang the release clang runs/mine/release; its compiles are written to `log`.

    It refuses -enable-ml-inliner=release, which is why the stand-in appends the default.
    """
    programs = project / "runs/mine/release/bin"
    programs.mkdir(parents=True)
    for name in ("clang", "clang++"):
        (programs / name).write_text(
            f'#!/bin/sh\ncase " $* " in *" -c "*) echo "$*" >>{log};; esac\n'
            f'set -- "$@" -mllvm -enable-ml-inliner=default\nexec {LLVM / name} "$@"\n'
        )
        (programs / name).chmod(0o755)


@pytest.mark.toolchain
def test_example_of_compare_builds_works_as_it_stands_in_its_help(tmp_path: Path) -> None:
    write_sources(tmp_path / "project")
    stand_in_release(tmp_path / "project", tmp_path / "said")
    shown = CliRunner().invoke(compare_builds, ["--help"]).output
    example = re.search(r"^ *Example: .*\n((?: {4,}.*\n)+)", shown, re.M)[1]
    done = shell(example, tmp_path / "project")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "-mllvm -enable-ml-inliner=release" in (tmp_path / "said").read_text()
    assert "build-mlgo" in done.stdout and "program" in done.stdout
    assert "warning" not in done.stdout + done.stderr


@pytest.mark.toolchain
def test_readme_commands_use_the_policy_of_a_release_clang_at_the_same_level(tmp_path: Path) -> None:
    """Stock clang in place of a release clang refuses the option, which shows that it got it."""
    write_sources(tmp_path / "project", **PROJECTS["fixed build type"])
    stand_in_release(tmp_path / "project", tmp_path / "said")
    done = shell(readme_commands()[1], tmp_path / "project")
    assert done.returncode == 0, done.stdout + done.stderr
    compiles = [line for line in (tmp_path / "said").read_text().splitlines() if "CMakeFiles/" in line]
    assert len(compiles) >= len(SOURCES)
    for line in compiles:
        levels = [word for word in line.split() if word.startswith("-O")]
        assert levels[-1] == "-Oz" and "-mllvm -enable-ml-inliner=release" in line and "embed-bitcode" not in line


def test_level_and_flags_follow_the_problem(tmp_path: Path) -> None:
    make_compilers(tmp_path / "tools")
    tools = make_compilers(tmp_path / "tools", "--problem", "regalloc")  # replaces them
    assert " -O2 -Xclang -fembed-bitcode=all " in (tools / "clang").read_text()
    assert (
        subprocess.run([tools / "llvm-ar", "--version"], capture_output=True, text=True).stdout.count("LLVM version 19")
        == 1
    )
    assert (tools / "g++").read_text().replace("clang++", "clang") == (tools / "clang").read_text()


def test_arguments_with_spaces_reach_the_compiler(tmp_path: Path) -> None:
    tools = make_compilers(tmp_path / "with space")
    source = tmp_path / "a b.c"
    source.write_text("const char *text = TEXT;\n")
    subprocess.run([tools / "cc", "-c", source, '-DTEXT="x y $z"', "-o", tmp_path / "a b.o"], check=True)
    assert b"x y $z" in (tmp_path / "a b.o").read_bytes()


@pytest.mark.parametrize("words", [["-O3", "--", "a.c"], ["-DTEXT=a -- b", "a.c", "-O3"]])
def test_flags_precede_the_end_of_options(tmp_path: Path, words: list[str]) -> None:
    """Rust's cc writes -- before the source."""
    tools = make_compilers(tmp_path / "tools")
    (tmp_path / "a.c").write_text("int f(void) { return 1; }\n")
    subprocess.run([tools / "clang", "-c", "-o", "a.o", *words], cwd=tmp_path, check=True)
    assert levels(tmp_path / "corpus", "--input", str(tmp_path), "--input-type", "directory") == [("-Oz",)]


@pytest.mark.parametrize(
    ("option", "program", "problem", "remedy"),
    [
        ("--clang=clang-none", "", "there is no compiler clang-none", ""),
        ("--clang={t}/clang", "gcc 12", "is no clang", ""),
        ("--clang={t}/clang", "Debian clang version 19.1.7", "llvm-ar", "llvm-19"),
        ("--release={t}", "", "no compiler", "mlgo toolchain --mode release"),
    ],
)
def test_unusable_compilers_are_named(option: str, program: str, problem: str, remedy: str, tmp_path: Path) -> None:
    (tmp_path / "clang").write_text(f"#!/bin/sh\necho {program}\n")
    (tmp_path / "clang").chmod(0o755)
    with pytest.raises(UserError, match=problem) as raised:
        make_compilers(tmp_path / "t", option.format(t=tmp_path))
    assert remedy in raised.value.remedy and not (tmp_path / "t").exists()
