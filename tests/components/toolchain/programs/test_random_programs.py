"""Random C programs of Csmith print the same checksum when they are compiled as one module and at -O0."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

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
HEADERS = "-I/usr/include/csmith"


def parts(program: str, number: int) -> dict[str, str]:
    """Split a program into a header and files that use each other's functions and variables.

    Csmith's own --max-split-files leaves out the types, and keeps everything static.
    """
    types, _, rest = program.partition("/* --- GLOBAL VARIABLES --- */\n")
    rest = re.sub(r"^static ", "", rest, flags=re.MULTILINE)
    variables, _, rest = rest.partition("/* --- FORWARD DECLARATIONS --- */\n")
    declarations, _, rest = rest.partition("/* --- FUNCTIONS --- */\n")
    functions, divider, main = rest.rpartition("/* ---------------------------------------- */\n")
    assert variables and declarations and divider
    declared = (re.split(" = |;", line)[0] for line in variables.splitlines() if re.match(r"[a-z].*\bg_\d", line))
    extern = "".join(f"extern {variable};\n" for variable in declared)
    bodies = functions.split("/* ------------------------------------------ */\n")
    files = {f"part{part}.c": '#include "program.h"\n' + "".join(bodies[part::number]) for part in range(number)}
    return {"program.h": types + extern + declarations, **files, "main.c": '#include "program.h"\n' + variables + main}


@pytest.mark.parametrize("seed", SEEDS)
def test_random_program_prints_the_checksum_of_o0(toolchain: Path, tmp_path: Path, seed: int) -> None:
    program = run("csmith", "--max-funcs", "5", "--seed", str(seed), directory=tmp_path)
    files = parts(program, 3)
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    sources = [HEADERS, "-w", *(name for name in files if name.endswith(".c"))]
    run(STOCK / "clang", "-O0", *sources, "-o", "stock", directory=tmp_path)
    size = ["-Oz", "-flto", "-fvisibility=hidden", "-Wl,--gc-sections,--icf=all", KEEP_SMALLER]
    run(toolchain / "bin" / "clang", *size, *sources, "-o", "ours", directory=tmp_path)
    expected = run("./stock", directory=tmp_path)
    assert run("./ours", directory=tmp_path) == expected and expected.startswith("checksum = ")
