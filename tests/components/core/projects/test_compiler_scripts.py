"""Tests of compilers that append flags: what they run, with a real clang."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

from components.core.projects.compiler_scripts import installed_names, write_compilers

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


def test_flags_stand_last_but_before_files(tmp_path: Path) -> None:
    write_compilers(tmp_path, CLANG, ["-Oz"], ["-Wl,--gc-sections"])
    (tmp_path / "main.cpp").write_text("int main() {}\n")
    subprocess.run([tmp_path / "g++", "-O3", "-o", "program", "--", "main.cpp"], cwd=tmp_path, check=True)
    assert '"-Oz"' in arguments(tmp_path / "clang++", "-O3", "-c", "--", "main.cpp")
    assert subprocess.run([tmp_path / "program"]).returncode == 0


def test_names_are_those_of_installed_native_compilers(tmp_path: Path) -> None:
    for name in ("g++-12", "x86_64-linux-gnu-gcc-12", "clang++-19", "c99", "aarch64-linux-gnu-gcc", "gcc-ar", "clangd"):
        (tmp_path / name).touch()
    c, cxx = installed_names(f"{tmp_path}:/nowhere")
    native = [name for name in (*c, *cxx) if "-" in name or name == "c99"]
    expected = ["c99", "clang++-19", "g++-12"]
    if platform.machine() == "x86_64":
        expected.append("x86_64-linux-gnu-gcc-12")
    assert sorted(native) == sorted(expected)
    assert {"cc", "gcc", "clang"} < set(c) and {"c++", "g++", "clang++"} < set(cxx)
    write_compilers(tmp_path, CLANG, ["-Oz"], names=(c, cxx))
    assert '"-Oz"' in arguments(tmp_path / "g++-12", "-O3", "-c", "-x", "c++", "/dev/null")
