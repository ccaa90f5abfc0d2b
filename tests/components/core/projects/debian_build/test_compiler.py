"""The script that replaces GCC: the flags it passes on, the flags it drops, and the objects it keeps."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from components.core.compiler.objects.elf import Elf
from components.core.projects.debian_build.package import SCRIPTS

ECHO = '#!/bin/sh\necho "$0" "$@"\n'


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a directory with the script under its names, and settings that make it run clang."""
    (tmp_path / "source").mkdir()
    for name in ("gcc", "g++", "x86_64-linux-gnu-g++-12", "cc"):
        (tmp_path / name).symlink_to(SCRIPTS / "compiler")
    settings(tmp_path, "/usr/bin/clang-19", "/usr/bin/clang++-19")
    return tmp_path


def settings(root: Path, clang: str, clangxx: str) -> None:
    values = {
        "CLANG": clang,
        "CLANGXX": clangxx,
        "FLAGS": "-w -Oz",
        "COMPILE_FLAGS": "-Xclang -fembed-bitcode=all",
        "LINK_FLAGS": "-Wl,--gc-sections",
        "MULTIARCH": "x86_64-linux-gnu",
        "SOURCE": str(root / "source"),
        "OBJECTS": str(root / "objects"),
    }
    (root / "compiler.conf").write_text("".join(f"{name}='{value}'\n" for name, value in values.items()))


def run(root: Path, name: str, *arguments: str) -> str:
    environment = {**os.environ, "MLGO_COMPILER_CONF": str(root / "compiler.conf")}
    command = [str(root / name), *arguments]
    done = subprocess.run(command, cwd=root / "source", env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def write_echo(root: Path) -> None:
    """Make the script run programs that print their arguments."""
    for name in ("c", "c++"):
        (root / name).write_text(ECHO)
        (root / name).chmod(0o755)
    settings(root, str(root / "c"), str(root / "c++"))


def test_flags_come_last_and_what_only_gcc_has_is_dropped(root: Path) -> None:
    write_echo(root)
    dropped = ("-flto=auto", "-ffat-lto-objects", "-specs=/x", "-Werror")
    command = run(root, "gcc", "-O2", *dropped, "-DA=b c", "m.c", "-o", "m")
    assert command == f"{root}/c -O2 -DA=b c m.c -o m -w -Oz -Wl,--gc-sections\n"
    assert run(root, "x86_64-linux-gnu-g++-12", "-c", "-o", "m.o", "m.cc").split() == [
        f"{root}/c++",
        "-c",
        "-o",
        "m.o",
        "m.cc",
        "-w",
        "-Oz",
        "-Xclang",
        "-fembed-bitcode=all",
    ]
    assert run(root, "cc", "-E", "-c", "m.c").split() == [f"{root}/c", "-E", "-c", "m.c", "-w", "-Oz"]


def test_an_option_s_value_is_no_option(root: Path) -> None:
    write_echo(root)
    assert run(root, "cc", "-o", "-c", "-I", "-flto", "m.c").split()[1:6] == ["-o", "-c", "-I", "-flto", "m.c"]


def test_the_machine_is_spelled_as_gcc_does(root: Path) -> None:
    assert run(root, "gcc", "-dumpmachine") == "x86_64-linux-gnu\n"


def test_objects_are_kept_at_their_paths(root: Path) -> None:
    source = root / "source"
    (source / "sub").mkdir()
    (source / "a.c").write_text("int a(int x) { return 2 * x; }\n")
    (source / "sub" / "b.cc").write_text("int b() { return 1; }\n")
    (source / "conftest.c").write_text("int main(void) { return 0; }\n")
    run(root, "gcc", "-O2", "-c", "a.c")
    run(root, "g++", "-c", "sub/b.cc", "-o", f"{source}/sub/b.o")
    run(root, "gcc", "-c", "conftest.c")
    run(root, "gcc", "-c", "a.c", "-o", f"{root}/outside.o")
    (source / "a.o").unlink()  # as builds do once it is in an archive
    objects = sorted(path.relative_to(root / "objects").as_posix() for path in (root / "objects").rglob("*.o"))
    assert objects == ["a.o", "sub/b.o"]
    command = Elf(memoryview((root / "objects" / "a.o").read_bytes())).section(".llvmcmd")
    assert command is not None and b"-Oz" in bytes(command).split(b"\0") and b"-O2" not in bytes(command).split(b"\0")


def test_a_failing_compile_fails(root: Path) -> None:
    (root / "source" / "bad.c").write_text("int f(\n")
    with pytest.raises(subprocess.CalledProcessError):
        run(root, "gcc", "-c", "bad.c")
    assert not (root / "objects").exists()
