"""Which modules a build links into which of its files: real builds, finished ones and ones that are only configured."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from components.forecast.linked_files import BuildFiles, Library, LinkedFile, find_linked_files
from components.forecast.units import SourceUnit, source_units
from tests.support.commands import run_command
from tests.support.programs import configure_cmake

CMAKE = """cmake_minimum_required(VERSION 3.16)
project(own LANGUAGES C ASM)
add_library(common STATIC part/same.c same.c)
add_library(whole STATIC whole.c)
add_library(shared SHARED shared.c)
add_executable(first first.c text.S)
target_link_libraries(first common shared)
target_link_options(first PRIVATE -Wl,--gc-sections -rdynamic -Wl,-rpath,/own)
add_executable(second second.c)
target_link_libraries(second common "-Wl,--whole-archive" whole "-Wl,--no-whole-archive")
add_library(unused STATIC unused.c)
"""
MAIN = "int same(void); int main(void) { return same(); }\n"
SOURCES = {
    "CMakeLists.txt": CMAKE,
    "part/same.c": "int same(void) { return 1; }\n",
    "same.c": "int other(void) { return 2; }\n",
    "whole.c": "int whole(void) { return 3; }\n",
    "shared.c": "int shared(void) { return 4; }\n",
    "unused.c": "int unused(void) { return 5; }\n",
    "first.c": MAIN,
    "second.c": MAIN,
    "text.S": ".globl text\ntext: ret\n.section .note.GNU-stack\n",
}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name, text in SOURCES.items():
        path = tmp_path / "own" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "own"


def configure(source: Path, generator: str, *options: str) -> Path:
    return configure_cmake(source, generator, "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *options)


def find(build: Path) -> tuple[BuildFiles, list[SourceUnit]]:
    units = source_units(build / "compile_commands.json")
    return find_linked_files(units, build / "compile_commands.json"), units


def described(file: LinkedFile, units: list[SourceUnit]) -> list[str]:
    """Return the inputs of a file: sources, those of a library in parentheses, and names of other objects."""

    def name(number: int) -> str:
        return os.path.relpath(units[number].source, Path(units[number].root).parent)

    return [
        name(item)
        if isinstance(item, int)
        else f"({' '.join(map(name, item.units))})"
        if isinstance(item, Library)
        else item.name
        for item in file.inputs
    ]


FILES = {
    "libshared.so": ["shared.c"],
    "first": ["first.c", "(part/same.c same.c)"],
    "second": ["second.c", "(part/same.c same.c)", "whole.c"],
}


@pytest.mark.parametrize(("generator", "origin"), [("Ninja", "ninja"), ("Unix Makefiles", "CMake")])
def test_files_are_known_before_the_build(source: Path, generator: str, origin: str) -> None:
    links, units = find(configure(source, generator))
    assert links.source == origin
    assert {file.name: described(file, units) for file in links.files} == FILES
    by_name = {file.name: file for file in links.files}
    assert by_name["libshared.so"].shared and not by_name["first"].shared
    assert by_name["first"].options == ("--gc-sections", "--export-dynamic")
    assert by_name["second"].options == ()
    libraries = [item for file in links.files for item in file.inputs if isinstance(item, Library)]
    assert [library.path for library in libraries] == [None, None]


@pytest.mark.toolchain
def test_files_are_those_that_compilers_recorded(source: Path, tmp_path: Path) -> None:
    compilers = tmp_path / "compilers"
    done = run_command("components.corpus", "compilers", "--output", compilers)
    assert done.returncode == 0, done.stderr
    build = configure(source, "Unix Makefiles", f"-DCMAKE_C_COMPILER={compilers / 'clang'}")
    subprocess.run(["cmake", "--build", build], check=True, capture_output=True)
    links, units = find(build)
    assert links.source == "recorded"
    files = {file.name: described(file, units) for file in links.files}
    # Both same.c.o of the archive are told apart by their contents.
    assert files == {**FILES, "first": ["first.c", "text.S.o", "(part/same.c same.c)"]}
    libraries = [item for file in links.files for item in file.inputs if isinstance(item, Library)]
    assert {library.path for library in libraries} == {build / "libcommon.a"}


def test_nothing_is_known_of_other_builds(source: Path) -> None:
    entry = {"directory": str(source), "file": "first.c", "command": "cc -c first.c"}
    (source / "compile_commands.json").write_text(json.dumps([entry]))
    links, _units = find(source)
    assert links == BuildFiles("none", ())


def test_relocatable_objects_are_followed_to_their_modules(source: Path) -> None:
    rules = (
        "rule cc\n  command = clang -c $in -o $out\n"
        "rule join\n  command = ld -r -o $out $in\n"
        "rule link\n  command = clang -o $out $in\n"
    )
    objects = [f"build {name}.o: cc {name}.c\n" for name in ("first", "same", "whole", "shared")]
    joins = [
        "build pair.o: join same.o whole.o\n",
        "build all.o: join pair.o shared.o\n",
        "build app: link first.o all.o\n",
    ]
    (source / "build.ninja").write_text(rules + "".join(objects + joins))
    database = source / "compile_commands.json"
    with database.open("w") as stream:
        subprocess.run(["ninja", "-t", "compdb", "cc"], cwd=source, check=True, stdout=stream)
    units = source_units(database)
    (app,) = find_linked_files(units, database).files
    assert app.name == "app"
    names = [units[item].source for item in app.inputs if isinstance(item, int)]
    assert names == ["first.c", "same.c", "whole.c", "shared.c"] and len(app.inputs) == 4
