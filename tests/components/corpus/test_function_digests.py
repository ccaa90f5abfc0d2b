"""Digests of modules are equal if and only if their functions are."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from components.corpus.sources.debian_packages import digest_functions
from components.platform.errors import UserError

CODE = "static int g(int x) { return x * 3; } int f(int x) { return g(x) + g(x + 1); }"


def compile_bitcode(path: Path, code: str, *flags: str) -> Path:
    command = ["clang-19", "-Oz", *flags, "-emit-llvm", "-c", "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=code.encode(), check=True)
    return path


def test_digest_depends_on_code_but_not_on_relocation_model(tmp_path: Path) -> None:
    modules = [
        compile_bitcode(tmp_path / "static.bc", CODE, "-fno-PIC"),
        compile_bitcode(tmp_path / "shared.bc", CODE, "-fPIC"),
        compile_bitcode(tmp_path / "constant.bc", CODE.replace("3", "5")),
        compile_bitcode(tmp_path / "name.bc", CODE.replace("f(int", "h(int")),
        compile_bitcode(tmp_path / "data.bc", "int x = 1;"),
    ]
    static, shared, constant, name, data = digest_functions(modules, 19)
    assert static == shared and data == ""
    assert len({static, constant, name}) == 3


def test_error_names_the_invalid_module(tmp_path: Path) -> None:
    (tmp_path / "m.bc").write_bytes(b"BC\xc0\xde and no more")
    with pytest.raises(UserError, match=r"m\.bc"):
        digest_functions([tmp_path / "m.bc"], 19)


def test_missing_opt_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="opt-7 is missing"):
        digest_functions([tmp_path / "m.bc"], 7)
