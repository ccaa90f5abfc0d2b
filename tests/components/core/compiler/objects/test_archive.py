"""Tests of static libraries made by llvm-ar."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.core.compiler.objects.archive import member_contents
from components.platform.errors import UserError

AR = "/usr/lib/llvm-19/bin/llvm-ar"


def make_archive(directory: Path, flags: str = "rcs") -> Path:
    (directory / "odd.txt").write_bytes(b"odd")  # padded to an even length
    (directory / "a_member_whose_name_does_not_fit_into_the_header.txt").write_bytes(b"long name")
    (directory / "empty.txt").write_bytes(b"")
    names = ["odd.txt", "a_member_whose_name_does_not_fit_into_the_header.txt", "empty.txt"]
    subprocess.run([AR, "--format=gnu", flags, "lib.a", *names], cwd=directory, check=True)
    return directory / "lib.a"


def test_members_are_in_order_without_the_name_table(tmp_path: Path) -> None:
    data = memoryview(make_archive(tmp_path).read_bytes())
    assert [bytes(member) for member in member_contents(data)] == [b"odd", b"long name", b""]


def test_symbol_index_is_not_a_member(tmp_path: Path) -> None:
    (tmp_path / "f.c").write_text("int f(void) { return 1; }")
    subprocess.run(["clang-19", "-c", "f.c"], cwd=tmp_path, check=True)
    subprocess.run([AR, "--format=gnu", "rcs", "lib.a", "f.o"], cwd=tmp_path, check=True)
    data = memoryview((tmp_path / "lib.a").read_bytes())
    assert [bytes(member) for member in member_contents(data)] == [(tmp_path / "f.o").read_bytes()]


def test_truncation_is_an_error_or_ends_between_members(tmp_path: Path) -> None:
    data = make_archive(tmp_path).read_bytes()
    whole = [bytes(member) for member in member_contents(memoryview(data))]
    for length in range(len(data)):
        try:
            contents = [bytes(member) for member in member_contents(memoryview(data[:length]))]
        except UserError:
            continue
        assert contents == whole[: len(contents)]


def test_thin_archive_is_refused(tmp_path: Path) -> None:
    data = memoryview(make_archive(tmp_path, "rcsT").read_bytes())
    with pytest.raises(UserError, match="thin archive"):
        member_contents(data)


@given(st.binary(max_size=200))
def test_random_bytes_are_read_or_refused(tail: bytes) -> None:
    try:
        for member in member_contents(memoryview(b"!<arch>\n" + tail)):
            assert len(member) <= len(tail)
    except UserError:
        pass
