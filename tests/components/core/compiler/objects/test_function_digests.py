"""Which functions two objects have in common, by real compiles; damaged files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from components.core.compiler.objects.elf import Elf
from components.core.compiler.objects.function_digests import FILE, FunctionDigests, read_function_digests
from components.core.compiler.objects.function_sizes import FunctionSizes, read_function_sizes
from components.platform.errors import UserError
from components.platform.storage.manifest import write_manifest

HEADER = """
extern int global;
__attribute__((noinline)) inline int shared(int x) { for (int i = 0; i < x; ++i) global += x ^ i; return global * 31; }
"""
SOURCES = {
    "trained": HEADER + "int a(int x) { return shared(x) + 7; } int same(int x) { return x * x; }",
    "heldout": HEADER + "int b(int x) { return shared(x) + 7; } int same(int x) { return x + 12345; }",
}


def functions(directory: Path, name: str, *flags: str) -> FunctionSizes:
    source, made = directory / f"{name}.cpp", directory / f"{name}.o"
    source.write_text(SOURCES[name])
    subprocess.run(["clang-19", "-Oz", *flags, "-c", source, "-o", made], check=True)
    return read_function_sizes(Elf(made.read_bytes()), want_bodies=True)


@pytest.mark.parametrize("flags", [(), ("-ffunction-sections",), ("--target=aarch64-linux-gnu",)])
def test_functions_are_known_by_name_and_instructions(tmp_path: Path, flags: tuple[str, ...]) -> None:
    trained = FunctionDigests()
    for _twice in range(2):
        trained.add(functions(tmp_path, "trained", *flags))
    trained.write(tmp_path)
    write_manifest(tmp_path, kind="trace")
    read = read_function_digests(tmp_path)
    assert read is not None and read.functions.size == 3, "each function once"
    heldout = functions(tmp_path, "heldout", *flags)
    entry = dict(zip(heldout.names, heldout.entry.tolist(), strict=True))
    known, bodies = read.known(heldout), read.known_bodies(heldout)
    assert [name for name in entry if known[entry[name]]] == ["_Z6sharedi"]
    assert not known[entry["_Z4samei"]], "the same name, other instructions"
    is_short = heldout.instructions < 24
    assert bodies[entry["_Z6sharedi"]] and not bodies[entry["_Z4samei"]]
    assert bodies[entry["_Z1bi"]] == (not is_short[entry["_Z1bi"]]), "a's instructions"


def test_trace_without_functions(tmp_path: Path) -> None:
    write_manifest(tmp_path, kind="trace")
    assert read_function_digests(tmp_path) is None


@pytest.mark.parametrize("damage", ["empty", "text", "floats", "one row"])
def test_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / FILE
    if damage == "floats":
        np.save(path, np.zeros((2, 3)))
    elif damage == "one row":
        np.save(path, np.zeros((1, 3), np.uint64))
    else:
        path.write_text("" if damage == "empty" else "no array")
    write_manifest(tmp_path, kind="trace")
    with pytest.raises(UserError, match="functions"):
        read_function_digests(tmp_path)
