"""Links in the files of ninja and of CMake's Makefiles, which the real tools wrote."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from components.core.projects.build_links.build_files import commands_of_cmake, commands_of_ninja, links_in
from tests.support.programs import configure_cmake

CMAKE = """cmake_minimum_required(VERSION 3.16)
project(own LANGUAGES C)
add_subdirectory(part)
add_executable(program main.c)
target_link_libraries(program part)
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "own" / "part").mkdir(parents=True)
    for name, text in {
        "CMakeLists.txt": CMAKE,
        "main.c": "int part(int);\nint main(void) { return part(1); }\n",
        "part/CMakeLists.txt": "add_library(part SHARED part.c)\n",
        "part/part.c": "int part(int a) { return a + 1; }\n",
    }.items():
        (tmp_path / "own" / name).write_text(text)
    return tmp_path / "own"


def build(source: Path, generator: str) -> Path:
    directory = configure_cmake(source, generator, "-DCMAKE_C_COMPILER=clang-19")
    subprocess.run(["cmake", "--build", directory], check=True, capture_output=True)
    return directory


def stamps(directory: Path) -> dict[str, int]:
    return {str(path): path.lstat().st_mtime_ns for path in directory.rglob("*")}


def test_links_of_ninja_in_the_order_of_the_build(source: Path) -> None:
    directory = build(source, "Ninja")
    before = stamps(directory)
    links = links_in(commands_of_ninja(directory))
    assert [link.output for link in links] == [str(directory / "part" / "libpart.so"), str(directory / "program")]
    assert {link.directory for link in links} == {str(directory)} and not links[0].cxx
    assert "CMakeFiles/program.dir/main.c.o" in links[1].arguments
    assert stamps(directory) == before, "the user's build is only read"


def test_links_of_cmakes_makefiles_run_in_their_directories(source: Path) -> None:
    directory = build(source, "Unix Makefiles")
    links = {Path(link.output).name: link for link in links_in(commands_of_cmake(directory))}
    assert {name: link.directory for name, link in links.items()} == {
        "libpart.so": str(directory / "part"),
        "program": str(directory),
    }
    assert "CMakeFiles/part.dir/part.c.o" in links["libpart.so"].arguments


def test_link_whose_response_file_is_gone_and_files_that_are_not_built_are_left_out(source: Path) -> None:
    rules = (
        "rule link\n  command = clang-19 -o $out @$out.rsp\n  rspfile = $out.rsp\n  rspfile_content = $in\n"
        "rule plain\n  command = cd part && clang-19 part.o -o ../$out\n"
        "build a: link main.o\nbuild b: plain main.o\nbuild c: plain main.o\n"
    )
    (source / "build.ninja").write_text(rules)
    (source / "a").touch()
    (source / "b").touch()
    (link,) = links_in(commands_of_ninja(source))
    assert (link.directory, link.output) == (str(source / "part"), str(source / "b"))


def test_other_directories_have_no_links(tmp_path: Path, source: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "build.ninja").write_text("build a: unknown b\n")
    for directory in (source, tmp_path / "broken"):
        assert links_in(commands_of_ninja(directory)) == [] and links_in(commands_of_cmake(directory)) == []


def test_relocatable_links_without_a_driver_are_links(source: Path) -> None:
    rules = (
        "rule join\n  command = x86_64-linux-gnu-ld.bfd -r -T order.ld -o $out $in\n"
        "rule link\n  command = ld -shared -o $out $in\nbuild all.o: join a.o b.o\nbuild c.so: link a.o\n"
    )
    (source / "build.ninja").write_text(rules)
    (source / "all.o").touch()
    (source / "c.so").touch()
    (link,) = links_in(commands_of_ninja(source))
    assert (link.output, link.cxx) == (str(source / "all.o"), False)
    expected = ("-r", "-Wl,--build-id=none", "-fuse-ld=bfd", "-Wl,-T", "-Wl,order.ld", "-o", "all.o", "a.o", "b.o")
    assert link.arguments == expected
