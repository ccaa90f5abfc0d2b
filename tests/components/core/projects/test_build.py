"""Real builds of a small CMake project and of a Makefile: objects, binaries, failures, paths and flags."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from components.core.compiler.clang_programs import clangxx
from components.core.compiler.objects.elf import Elf
from components.core.projects.build import BuiltProject, build_project
from components.core.projects.recipe import Recipe, Source
from components.core.projects.recipe_document import Target
from components.core.projects.source import fetch_recipe
from components.platform.errors import UserError

CMAKE = """
cmake_minimum_required(VERSION 3.20)
project(toy C CXX)
# As many projects do, this one has an opinion about optimization.
set(CMAKE_C_FLAGS "${CMAKE_C_FLAGS} -O1")
add_library(toy SHARED lib/add.c lib/text.cc ${EXTRA})
target_include_directories(toy PRIVATE include)
add_executable(app app.c)
target_link_libraries(app toy)
"""
FILES = {
    "CMakeLists.txt": CMAKE,
    "include/toy.h": "#define WHERE __FILE__\n",
    "lib/add.c": (
        '#include "toy.h"\nint add(int a, int b) { return a + b; }\nconst char *where(void) { return WHERE; }\n'
    ),
    "lib/text.cc": "#include <string>\nint length(const char *t) { return int(std::string(t).size()); }\n",
    "app.c": "int add(int, int);\nint main(void) { return add(1, 2); }\n",
    "bad.c": "this is not C\n",
    "Makefile": (
        "app: app.o add.o\n\t$(CC) $(LDFLAGS) -o app app.o add.o\n"
        "add.o: lib/add.c\n\t$(CC) $(CFLAGS) -Iinclude -c lib/add.c -o add.o\n"
        "app.o: app.c\n\t$(CC) $(CFLAGS) -c app.c -o app.o\n"
    ),
}


@pytest.fixture
def toy(tmp_path: Path) -> Recipe:
    for name, text in FILES.items():
        path = tmp_path / "toy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Recipe("toy", Source("path", str(tmp_path / "toy")), cmake_options=(), binaries=("libtoy.so", "app"))


def changed(toy: Recipe, commands: tuple[str, ...] | None, **more: Any) -> Recipe:
    """Return the recipe with these commands, or built by CMake."""
    return dataclasses.replace(toy, cmake_options=None if commands else (), commands=commands, **more)


def build(recipe: Recipe, where: Path, clang: Path, flags: list[str], objects_only: bool = False) -> BuiltProject:
    source = fetch_recipe(recipe, where, where.parent / "cache")
    return build_project(recipe, source, where, clang, flags, jobs=2, objects_only=objects_only)


EMBED = ["-Xclang", "-fembed-bitcode=all", "-Oz"]


def arguments(path: Path) -> list[str]:
    section = Elf(path.read_bytes()).section(".llvmcmd")
    assert section is not None
    return bytes(section).decode().split("\0")


@pytest.mark.toolchain
def test_a_whole_build_leaves_its_binaries(toy: Recipe, tmp_path: Path, clang: Path) -> None:
    steps: list[tuple[int, int]] = []
    source = fetch_recipe(toy, tmp_path / "b", tmp_path / "cache")
    built = build_project(
        toy, source, tmp_path / "b", clang, ["-Oz"], 2, progress=lambda done, total: steps.append((done, total))
    )
    assert [path.name for path in built.binaries] == ["app", "libtoy.so"] and not built.failed
    assert steps[-1][0] == steps[-1][1] >= 5
    assert "CMakeFiles/toy.dir/lib/add.c.o" in built.compile_commands.read_text()
    assert not (tmp_path / "toy" / "CMakeFiles").exists(), "the user's tree is not written to"


@pytest.mark.toolchain
@pytest.mark.parametrize("commands", [None, ("make app",)])
def test_links_get_the_link_flags(toy: Recipe, tmp_path: Path, clang: Path, commands: tuple[str, ...] | None) -> None:
    recipe = changed(toy, commands, binaries=("app",)) if commands else toy
    source = fetch_recipe(recipe, tmp_path / "b", tmp_path / "cache")
    built = build_project(recipe, source, tmp_path / "b", clang, ["-Oz"], 2, ldflags=["-Wl,--build-id=0x6d6c676f2121"])
    assert [path.name for path in built.binaries] == (["app"] if commands else ["app", "libtoy.so"])
    assert all(b"mlgo!!" in path.read_bytes() for path in built.binaries)


@pytest.mark.toolchain
def test_objects_have_our_optimization_level_and_no_build_path(toy: Recipe, tmp_path: Path, clang: Path) -> None:
    contents = []
    for build_dir in ("here", "some/where/else"):
        built = build(toy, tmp_path / build_dir, clang, EMBED, objects_only=True)
        assert built.binaries == () and not (built.directory / "app").exists()
        item = built.directory / "CMakeFiles/toy.dir/lib/add.c.o"
        assert [a for a in arguments(item) if a.startswith("-O")] == ["-Oz"]
        contents.append(item.read_bytes())
    assert contents[0] == contents[1] and str(tmp_path).encode() not in contents[0]


@pytest.mark.toolchain
def test_a_failing_file_does_not_stop_the_others(toy: Recipe, tmp_path: Path, clang: Path) -> None:
    recipe = dataclasses.replace(toy, cmake_options=(("EXTRA", "bad.c"),))
    built = build(recipe, tmp_path / "b", clang, EMBED, objects_only=True)
    assert built.failed == ("CMakeFiles/toy.dir/bad.c.o",)
    assert (tmp_path / "b/CMakeFiles/toy.dir/lib/text.cc.o").exists()
    with pytest.raises(UserError, match="binaries") as caught:
        shutil.rmtree(tmp_path / "b")
        build(recipe, tmp_path / "b", clang, EMBED)
    assert "not C" in str(caught.value) or "bad.c" in str(caught.value)


@pytest.mark.toolchain
def test_excluded_objects_are_neither_built_nor_listed(toy: Recipe, tmp_path: Path, clang: Path) -> None:
    recipe = dataclasses.replace(toy, exclude=("*", "!*.c.o", "*/lib/*"))
    built = build(recipe, tmp_path / "b", clang, EMBED, objects_only=True)
    entries = json.loads(built.compile_commands.read_text())
    assert [Path(entry["file"]).name for entry in entries] == ["app.c"]
    assert not (tmp_path / "b/CMakeFiles/toy.dir/lib/add.c.o").exists()
    with pytest.raises(UserError, match="compiles nothing"):
        build(dataclasses.replace(toy, exclude=("*",)), tmp_path / "c", clang, EMBED, objects_only=True)


def test_commands_build_a_copy(toy: Recipe, tmp_path: Path, clang: Path) -> None:
    recipe = changed(toy, ("make -j$JOBS app",), prepare=("test -e Makefile",), binaries=("app",))
    built = build(recipe, tmp_path / "b", clang, EMBED)
    assert [path.name for path in built.binaries] == ["app"]
    assert not (tmp_path / "toy/app.o").exists(), "the user's tree is not written to"
    entries = json.loads(built.compile_commands.read_text())
    assert [entry["output"] for entry in entries] == ["add.o", "app.o"]
    assert "-Oz" in arguments(built.directory / "add.o")
    strings = Elf((built.directory / "add.o").read_bytes()).section(".rodata.str1.1")
    assert strings is not None and b"lib/add.c" in strings.tobytes() and str(tmp_path).encode() not in strings.tobytes()


STATIC = """program: app.o libadd.a
\t$(CC) $^ -o $@
libadd.a: add.o
\t$(AR) rc $@ $^
add.o: lib/add.c
\t$(CC) $(CFLAGS) -I. -Iinclude -Ilib -c $< -o $@
"""


def test_commands_link_archives_although_a_plugin_of_another_llvm_is_installed(
    toy: Recipe, tmp_path: Path, clang: Path
) -> None:
    assert list(Path("/usr/lib/bfd-plugins").glob("LLVMgold-14.so")), "package llvm-14-linker-tools"
    (tmp_path / "toy" / "static.mk").write_text(STATIC)
    recipe = changed(toy, ("make -f static.mk program",), binaries=("program",))
    assert [path.name for path in build(recipe, tmp_path / "b", clang, EMBED).binaries] == ["program"]


def test_a_command_that_fails_is_named_with_its_output(toy: Recipe, tmp_path: Path, clang: Path) -> None:
    recipe = changed(toy, ("echo made no app; exit 3",))
    with pytest.raises(UserError, match="toy cannot") as caught:
        build(recipe, tmp_path / "b", clang, EMBED)
    assert "no app" in caught.value.problem


def test_a_project_that_cannot_be_configured(toy: Recipe, tmp_path: Path, clang: Path) -> None:
    needy = "cmake_minimum_required(VERSION 3.20)\nproject(toy C)\nfind_package(Nope REQUIRED)\n"
    (tmp_path / "toy/CMakeLists.txt").write_text(needy)
    with pytest.raises(UserError, match="configured") as caught:
        build(toy, tmp_path / "b", clang, EMBED)
    assert "Nope" in caught.value.problem and "build.log" in caught.value.remedy


def test_clangxx_is_found_next_to_clang(tmp_path: Path, clang: Path) -> None:
    assert clangxx(clang).name.startswith("clang++")
    assert clangxx(clang.resolve()).name == "clang++"
    with pytest.raises(UserError, match="no clang"):
        (tmp_path / "clang").touch()
        clangxx(tmp_path / "clang")


def test_old_project_is_linked_for_a_target(toy: Recipe, tmp_path: Path, clang: Path) -> None:
    """Without a minimum version, CMake checks compilers without the linker's flags; the recipe sets the compiler's."""
    source = tmp_path / "toy" / "CMakeLists.txt"
    line = "cmake_minimum_required(VERSION 3.20)\n"
    source.write_text(CMAKE.replace(line, "").replace("project(toy C CXX)\n", f"project(toy C CXX)\n{line}"))
    options = (("CMAKE_CXX_FLAGS", "-DOWN"), ("CMAKE_C_FLAGS", "-DOWN"))
    recipe = dataclasses.replace(toy, target=Target("riscv64-linux-gnu"), cmake_options=options, binaries=())
    built = build(recipe, tmp_path / "build", clang, EMBED)
    assert not built.failed
    assert Elf((built.directory / "app").read_bytes()).machine == 243, "RISC-V"
    assert "-DOWN" in (built.directory / "compile_commands.json").read_text()


@pytest.mark.parametrize("commands", [None, ("make add.o app.o",)])
def test_a_target_decides_what_objects_are_for(
    toy: Recipe, tmp_path: Path, clang: Path, commands: tuple[str, ...] | None
) -> None:
    (tmp_path / "toy" / "lib" / "text.cc").write_text("int length(const char *t) { return *t ? 1 : 0; }\n")
    target = Target("thumbv7em-none-eabi", cflags=("-mcpu=cortex-m4",))
    recipe = changed(toy, commands, target=target, binaries=())
    built = build(recipe, tmp_path / "build", clang, EMBED, objects_only=True)
    assert not built.failed
    # CMake calls objects .obj where there is no operating system.
    objects = [path for path in built.directory.rglob("*.o*") if path.name.startswith(("add.", "app."))]
    assert len(objects) >= 2
    for path in objects:
        elf = Elf(path.read_bytes())
        assert (elf.machine, elf.address_bytes) == (40, 4), "32-bit ARM"
        assert b"cortex-m4" in bytes(elf.section(".llvmcmd") or b"")


@pytest.mark.parametrize("commands", [None, ("make app",)])
def test_missing_cross_libraries_are_named(
    toy: Recipe, commands: tuple[str, ...] | None, tmp_path: Path, clang: Path
) -> None:
    (tmp_path / "root").mkdir()
    target = Target("sparc64-linux-gnu", str(tmp_path / "root"))
    recipe = changed(toy, commands, target=target)
    with pytest.raises(UserError, match=r"stdlib\.h'") as caught:
        build(recipe, tmp_path / "build", clang, ["-Oz"])
    assert "-cross" in caught.value.remedy and "target.sysroot" in caught.value.remedy
