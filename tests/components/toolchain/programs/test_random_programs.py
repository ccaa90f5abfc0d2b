"""Random C programs of Csmith print the same checksum when they are compiled as one module and at -O0."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.campaign.csmith import HEADERS, split_program
from tests.components.toolchain.programs.linked_programs import run
from tests.components.toolchain.programs.test_linker import toolchain
from tests.components.toolchain.programs.test_program_faults import KEEP_SMALLER, STOCK

pytestmark = [
    pytest.mark.toolchain,
    pytest.mark.skipif(shutil.which("csmith") is None, reason="csmith is not installed"),
]
__all__ = ["toolchain"]

SEEDS = (2, 5, 6, 11, 12, 15, 17, 19, 22, 23)
"""Of programs that are small and end soon."""


@pytest.mark.parametrize("seed", SEEDS)
def test_random_program_prints_the_checksum_of_o0(toolchain: Path, tmp_path: Path, seed: int) -> None:
    program = run("csmith", "--max-funcs", "5", "--seed", str(seed), directory=tmp_path)
    files = split_program(program, 3)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    sources = [*HEADERS, "-w", *(name for name in files if name.endswith(".c"))]
    run(STOCK / "clang", "-O0", *sources, "-o", "stock", directory=tmp_path)
    size = ["-Oz", "-flto", "-fvisibility=hidden", "-Wl,--gc-sections,--icf=all", KEEP_SMALLER]
    run(toolchain / "bin" / "clang", *size, *sources, "-o", "ours", directory=tmp_path)
    expected = run("./stock", directory=tmp_path)
    assert run("./ours", directory=tmp_path) == expected and expected.startswith("checksum = ")
