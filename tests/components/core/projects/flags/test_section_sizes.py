"""Compares section sizes of real programs and libraries with llvm-size."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from components.core.projects.flags.section_sizes import measure, section_group
from components.platform.errors import UserError

SOURCE = """
#include <stdexcept>
static const char table[1000] = {1, 2, 3};
int counters[500] = {1};
int zeroes[100000];
extern "C" int lookup(int i) { if (i > 999) throw std::out_of_range("i"); counters[i % 500]++; return table[i]; }
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("built")
    (directory / "lookup.cpp").write_text(SOURCE)
    (directory / "main.cpp").write_text('extern "C" int lookup(int); int main(int n, char **) { return lookup(n); }')

    def run(*argv: str) -> None:
        subprocess.run(argv, cwd=directory, check=True)

    run("clang++-19", "-Oz", "-fPIC", "-c", "lookup.cpp", "main.cpp")
    run("clang++-19", "-shared", "lookup.o", "-o", "liblookup.so")
    run("clang++-19", "-pie", "main.o", "lookup.o", "-o", "pie")
    run("clang++-19", "-no-pie", "main.o", "lookup.o", "-o", "program")
    run("/usr/lib/llvm-19/bin/llvm-ar", "rcs", "liblookup.a", "lookup.o", "main.o")
    return directory


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("liblookup.so", "shared library"),
        ("pie", "program"),
        ("program", "program"),
        ("lookup.o", "object"),
        ("liblookup.a", "static library"),
    ],
)
def test_kind_and_text_size_equal_llvm_size(built: Path, name: str, kind: str) -> None:
    measured = measure(built / name)
    assert measured.kind == kind
    output = subprocess.run(["llvm-size-19", built / name], check=True, capture_output=True, text=True).stdout
    assert measured.sizes.llvm_size_text == sum(int(line.split()[0]) for line in output.splitlines()[1:])


def test_section_groups_contain_the_data_of_the_source(built: Path) -> None:
    sizes = measure(built / "liblookup.so").sizes
    assert sizes.rodata >= 1000  # table
    assert 2000 <= sizes.data < 4000  # counters, without the 400,000 bytes of zeroes
    assert sizes.text > 0
    assert sizes.eh_frame > 0
    assert sizes.gcc_except_table > 0 and sizes.dynstr > 0
    unwind = sizes.eh_frame + sizes.gcc_except_table
    assert sizes.total == sizes.text + sizes.rodata + unwind + sizes.dynstr + sizes.data + sizes.other
    assert sizes.total < 20_000


def test_language_follows_from_the_needed_library(built: Path) -> None:
    (built / "main.c").write_text("int main(void) { return 0; }")
    subprocess.run(["clang-19", "main.c", "-o", "plain"], cwd=built, check=True)
    assert [measure(built / name).language for name in ("plain", "pie", "liblookup.so")] == ["c", "c++", "c++"]


def test_debug_data_is_not_counted(built: Path) -> None:
    subprocess.run(["clang++-19", "-Oz", "-fPIC", "-g", "-c", "lookup.cpp", "-o", "debug.o"], cwd=built, check=True)
    assert measure(built / "debug.o").sizes == measure(built / "lookup.o").sizes


@pytest.mark.parametrize(
    ("section", "group"),
    [
        (".text.unlikely.f", "text"),
        (".textual", "other"),
        (".init", "other"),
        (".init_array", "data"),
        (".data.rel.ro", "data"),
        (".eh_frame_hdr", "eh_frame"),
        (".gcc_except_table", "gcc_except_table"),
        (".dynstr", "dynstr"),
        (".rodata.str1.1", "rodata"),
        (".rela.dyn", "other"),
        (".bss", "bss"),
    ],
)
def test_section_group(section: str, group: str) -> None:
    assert section_group(section) == group


def test_error_names_a_file_that_is_no_binary(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("#!/bin/sh\n")
    with pytest.raises(UserError, match="script: "):
        measure(tmp_path / "script")


def test_padding_without_bytes_in_the_file_does_not_count(tmp_path: Path) -> None:
    """lld reserves the end of the last page that becomes read-only, .relro_padding."""
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    command = ["clang-19", "-fuse-ld=lld", "main.c", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    headers = subprocess.run(
        ["readelf", "-SW", "main"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout
    assert ".relro_padding" in headers and "NOBITS" in headers
    assert measure(tmp_path / "main").sizes.total < 4000
