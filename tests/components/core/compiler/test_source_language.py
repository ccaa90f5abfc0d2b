"""Tests the detection of source languages from arguments and names, and from what clang really records."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from components.core.compiler.objects.elf import Elf
from components.core.compiler.source_language import source_language


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("p/a.c.o", "c"),
        ("p/a.cc.o", "c++"),
        ("p/a.c++.o", "c++"),
        ("p/x.cpp.pic.o", "c++"),
        ("p/a.C.o", "c++"),
        ("p/a.mm.o", "other"),
        ("p/a.rs", "other"),
        ("p/.libs/a.o", "c"),
        ("p/a.v2.o", "c"),
    ],
)
def test_suffix_is_used_if_arguments_have_no_language(name: str, language: str) -> None:
    assert source_language(["-cc1", "-Oz"], name) == language


@pytest.mark.parametrize(
    ("arguments", "language"),
    [
        (["-x", "c"], "c"),
        (["-x", "c++"], "c++"),
        (["-x", "objective-c++"], "other"),
        (["-x", "ir"], "c++"),
        (["-o", "-x"], "c++"),
        (["-x", "cpp-output"], "c"),
        (["-x", "c++-cpp-output"], "c++"),
    ],
)
def test_language_in_arguments_overrides_the_suffix(arguments: list[str], language: str) -> None:
    assert source_language(["-cc1", *arguments], "p/a.cpp.o") == language


def test_driver_arguments_or_ir_without_suffix_are_other() -> None:
    assert source_language(["-Oz"], "p/a.o") == source_language(["-cc1", "-x", "ir"], "p/a.o") == "other"
    assert source_language(["-cc1", "-fobjc-runtime=gcc"], "p/a.o") == source_language([], "p/a.o") == "other"


@pytest.mark.parametrize(("suffix", "language"), [("c", "c"), ("cpp", "c++")])
@pytest.mark.parametrize("flag", ["-fexceptions", "-fno-exceptions"])
def test_language_is_detected_from_recorded_cc1_arguments(
    tmp_path: Path, suffix: str, language: str, flag: str
) -> None:
    (tmp_path / f"a.{suffix}").write_text("int f(void) { return 1; }\n")
    command = ["clang-19", "-Oz", flag, "-Xclang", "-fembed-bitcode=all", "-c", f"a.{suffix}", "-o", "a.o"]
    subprocess.run(command, cwd=tmp_path, check=True)
    recorded = Elf((tmp_path / "a.o").read_bytes()).section(".llvmcmd")
    assert recorded is not None
    assert source_language(("-cc1", *bytes(recorded).decode().split("\0")), "p/a.o") == language
