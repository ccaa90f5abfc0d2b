"""Tests of compilers that append flags: what they run, with a real clang."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

from components.core.projects.compiler_scripts import (
    compiler_names,
    write_binutils,
    write_bitcode_tools,
    write_compilers,
)

CLANG = Path("/usr/bin/clang-19")


def arguments(script: Path, *words: str) -> str:
    """Return the commands that the driver would run."""
    (script.parent / "a.o").touch()
    done = subprocess.run([script, "-###", *words], cwd=script.parent, capture_output=True, text=True, check=True)
    return done.stderr


def test_link_flags_reach_links_but_not_links_to_an_object(tmp_path: Path) -> None:
    write_compilers(tmp_path, CLANG, ["-Oz", "-fuse-ld=lld"], ["-Wl,--gc-sections"])
    assert '"--gc-sections"' in arguments(tmp_path / "clang", "a.o", "-o", "a")
    for relocatable in ("-r", "-Wl,-r", "-Wl,--relocatable"):
        assert "--gc-sections" not in arguments(tmp_path / "clang", relocatable, "a.o", "-o", "b.o")


def test_links_to_an_object_get_the_flags_of_lto(tmp_path: Path) -> None:
    flags = ["-fuse-ld=lld", "-flto", "-Wl,--icf=safe", "-Wl,-mllvm,-inline-threshold=1"]
    write_compilers(tmp_path, CLANG, ["-Oz"], flags)
    command = arguments(tmp_path / "clang", "-r", "a.o", "-o", "b.o")
    assert "ld.lld" in command and "--icf=safe" not in command and "-inline-threshold=1" in command


def test_single_options_of_linker_and_assembler_are_dropped(tmp_path: Path) -> None:
    write_compilers(tmp_path, CLANG, [], dropped=["-Wl,--no-such", "-Wl,-z", "-Wa,-mtune=i8"])
    words = ["-Wl,--no-such", "-Wl,-O1,--no-such,-z,defs", "-Wl,--no-such,--trace", "-Wa,-mtune=i8"]
    command = arguments(tmp_path / "clang", *words, "-Wl,--no-such-other", "a.o")
    linked = [word for word in command.split() if word.strip('"') in ("-O1", "defs", "--trace")]
    assert linked == ['"-O1"', '"defs"', '"--trace"']
    assert '"--no-such"' not in command and '"--no-such-other"' in command
    assert '"-Wl"' not in command and "mtune" not in command


def test_binutils_have_the_names_of_installed_ones(tmp_path: Path) -> None:
    installed, tools = tmp_path / "installed", tmp_path / "tools"
    for directory in (installed, tools):
        directory.mkdir()
    native = f"{platform.machine()}-linux-gnu-gcc-nm-12"
    for name in ("gcc-ar", native, "arm-none-eabi-ar", "gcc-ranlib", "tar"):
        (installed / name).touch()
    write_binutils(tools, {"ar": Path("/usr/bin/llvm-ar-19"), "nm": Path("/usr/bin/llvm-nm-19")}, str(installed))
    assert {path.name for path in tools.iterdir()} == {"ar", "llvm-ar", "nm", "llvm-nm", "gcc-ar", native}
    assert "llvm-nm-19" in (tools / native).read_text()


def test_linker_takes_bitcode_and_is_gnus_otherwise(tmp_path: Path) -> None:
    write_bitcode_tools(tmp_path, Path("/usr/bin/ld.lld-19"), ["-mllvm", "-inline-threshold=1"], "/usr/bin:/bin")
    (tmp_path / "a b.c").write_text("int f(void) { return 1; }\n")
    for name, flag in (("lto.o", "-flto"), ("native.o", "-fno-lto")):
        subprocess.run([CLANG, flag, "-c", "a b.c", "-o", name], cwd=tmp_path, check=True)
    subprocess.run(
        [tmp_path / "ld", "-r", "lto.o", "native.o", "-z", "muldefs", "-o", "a b.o"], cwd=tmp_path, check=True
    )
    assert " T f" in subprocess.check_output(["nm", "a b.o"], cwd=tmp_path, text=True)
    for name, word, linker in (("ld", "lto.o", "LLD"), ("ld.bfd", "lto.o", "LLD"), ("ld", "native.o", "GNU ld")):
        shown = subprocess.check_output([tmp_path / name, "-v", word, "-r", "-o", "x.o"], cwd=tmp_path, text=True)
        assert linker in shown


def test_strip_leaves_bitcode_as_it_is(tmp_path: Path) -> None:
    write_binutils(tmp_path, {"strip": Path("/usr/bin/llvm-strip-19")})
    write_bitcode_tools(tmp_path, Path("/usr/bin/ld.lld-19"), [], "/usr/bin:/bin")
    for name, flag in (("lto.o", "-flto"), ("native.o", "-g")):
        subprocess.run([CLANG, flag, "-x", "c", "-c", "/dev/null", "-o", tmp_path / name], check=True)
    before = (tmp_path / "lto.o").read_bytes()
    subprocess.run([tmp_path / "strip", "-g", "lto.o"], cwd=tmp_path, check=True)
    assert (tmp_path / "lto.o").read_bytes() == before
    subprocess.run([tmp_path / "strip", "-g", "native.o"], cwd=tmp_path, check=True)
    assert b".debug_info" not in (tmp_path / "native.o").read_bytes()


def test_flags_stand_last_but_before_files(tmp_path: Path) -> None:
    write_compilers(tmp_path, CLANG, ["-Oz"], ["-Wl,--gc-sections"])
    (tmp_path / "main.cpp").write_text("int main() {}\n")
    subprocess.run([tmp_path / "g++", "-O3", "-o", "program", "--", "main.cpp"], cwd=tmp_path, check=True)
    assert '"-Oz"' in arguments(tmp_path / "clang++", "-O3", "-c", "--", "main.cpp")
    assert subprocess.run([tmp_path / "program"]).returncode == 0


def test_names_are_those_of_installed_native_compilers(tmp_path: Path) -> None:
    for name in ("g++-12", "x86_64-linux-gnu-gcc-12", "clang++-19", "c99", "aarch64-linux-gnu-gcc", "gcc-ar", "clangd"):
        (tmp_path / name).touch()
    c, cxx = compiler_names(f"{tmp_path}:/nowhere")
    native = [name for name in (*c, *cxx) if "-" in name or name == "c99"]
    expected = ["c99", "clang++-19", "g++-12"]
    if platform.machine() == "x86_64":
        expected.append("x86_64-linux-gnu-gcc-12")
    assert sorted(native) == sorted(expected)
    assert {"cc", "gcc", "clang"} < set(c) and {"c++", "g++", "clang++"} < set(cxx)
    write_compilers(tmp_path, CLANG, ["-Oz"], names=(c, cxx))
    assert '"-Oz"' in arguments(tmp_path / "g++-12", "-O3", "-c", "-x", "c++", "/dev/null")


def test_words_of_large_links_are_read_once(tmp_path: Path) -> None:
    """Scripts that copy the words for each word, or run a program for each object, take 40 s here."""
    write_compilers(tmp_path, Path("/bin/echo"), [], dropped=["-fanalyzer", "-Wl,--no-such"])
    write_bitcode_tools(tmp_path, Path("/bin/echo"), [], "/usr/bin:/bin")
    objects = [f"object {index}'s.o" for index in range(10000)]
    (tmp_path / objects[-1]).write_bytes(b"!<arch>\nBC\xc0\xde")
    words = ["-fanalyzer", "-Wl,-O1,--no-such", *objects, "$HOME", "-Wl,--no-such", ""]
    for name, expected in (("clang", ["-Wl,-O1", *objects, "$HOME", ""]), ("ld", words)):
        done = subprocess.run(
            [tmp_path / name, *words], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=5
        )
        assert done.stdout == " ".join(expected) + "\n"


def test_paths_may_have_the_names_of_a_template(tmp_path: Path) -> None:
    directory = tmp_path / "PROGRAM FLAGS"
    directory.mkdir()
    (directory / "COMMAND").symlink_to("/bin/echo")
    write_compilers(directory, directory / "COMMAND", [f"-plan={directory}"], cxx=directory / "COMMAND")
    write_bitcode_tools(directory, directory / "COMMAND", [], "/usr/bin:/bin")
    (directory / "lto.o").write_bytes(b"BC\xc0\xde")
    assert subprocess.check_output([directory / "clang", "a"], text=True) == f"a -plan={directory}\n"
    assert subprocess.check_output([directory / "ld", "lto.o"], cwd=directory, text=True) == "lto.o\n"
