"""Modules are equal if their functions are."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from components.console import UserError
from components.corpus.duplicates import function_digests

CODE = "static int g(int x) { return x * 3; } int f(int x) { return g(x) + g(x + 1); }"


def compiled(path: Path, code: str, *flags: str) -> Path:
    command = ["clang-19", "-Oz", *flags, "-emit-llvm", "-c", "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=code.encode(), check=True)
    return path


def test_the_relocation_model_makes_no_difference_and_the_code_does(tmp_path: Path) -> None:
    modules = [
        compiled(tmp_path / "static.bc", CODE, "-fno-PIC"),
        compiled(tmp_path / "shared.bc", CODE, "-fPIC"),
        compiled(tmp_path / "constant.bc", CODE.replace("3", "5")),
        compiled(tmp_path / "name.bc", CODE.replace("f(int", "h(int")),
        compiled(tmp_path / "data.bc", "int x = 1;"),
    ]
    static, shared, constant, name, data = function_digests(modules, 19)
    assert static == shared and data == ""
    assert len({static, constant, name}) == 3


def test_what_is_no_module_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.bc").write_bytes(b"BC\xc0\xde and no more")
    with pytest.raises(UserError, match=r"m\.bc"):
        function_digests([tmp_path / "m.bc"], 19)


def test_a_missing_opt_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="opt-7 is missing"):
        function_digests([tmp_path / "m.bc"], 7)
