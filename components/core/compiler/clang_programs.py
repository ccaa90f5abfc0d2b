"""The programs that come with a clang or gcc: the C++ driver, binutils; and the version of a clang."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from components.platform.errors import UserError
from components.platform.processes.output import capture

BINUTILS = ("ar", "nm", "ranlib", "strip")


def clangxx(clang: Path) -> Path:
    """Return the C++ driver next to a clang: clang++-19 for clang-19, clang++ next to a link's target."""
    for path in (clang, clang.resolve()):
        for name in (path.name.replace("clang", "clang++", 1), "clang++"):
            if (path.parent / name).is_file():
                return path.parent / name
    raise UserError(f"there is no clang++ next to {clang}", "install it, or name another clang")


def is_gcc(compiler: Path) -> bool:
    """Return whether a compiler is a gcc, by its name."""
    return "gcc" in compiler.name


def gnu_program(gcc: Path, name: str) -> Path:
    """Return a program of a gcc's installation, such as g++-12 or gcc-ar-12 for gcc-12. UserError if it is missing."""
    path = gcc.with_name(gcc.name.replace("gcc", name, 1))
    if not path.is_file():
        raise UserError(f"there is no {path.name} next to {gcc}", f"install it, as {gcc.name} is")
    return path


def cxx_driver(compiler: Path) -> Path:
    """Return the C++ driver next to a clang or gcc. UserError if it is missing."""
    return gnu_program(compiler, "g++") if is_gcc(compiler) else clangxx(compiler)


def gnu_binutils(gcc: Path) -> dict[str, Path]:
    """Return the ar, nm and ranlib that load a gcc's plugin, which reads its objects of LTO. UserError if one is
    missing."""
    return {name: gnu_program(gcc, f"gcc-{name}") for name in ("ar", "nm", "ranlib")}


def llvm_binutils(clang: Path) -> dict[str, Path]:
    """Return LLVM's ar, nm, ranlib and strip next to a clang, by these names, without those that are missing.

    GNU's load every LLVM plugin that is installed (LLVMgold.so in bfd-plugins). One of another LLVM version finds no
    symbols in an object with embedded bitcode, and `ar` then writes an archive without an index.
    """
    programs = {name: clang.resolve().parent / f"llvm-{name}" for name in BINUTILS}
    return {name: path for name, path in programs.items() if path.is_file()}


def require_binutils(clang: Path, need: str) -> dict[str, Path]:
    """Return all of `llvm_binutils`. UserError if one is missing.

    Args:
        need: what needs them, for the error: "archives need that ...".
    """
    binutils = llvm_binutils(clang)
    if missing := [f"llvm-{name}" for name in BINUTILS if name not in binutils]:
        raise UserError(
            f"{clang.resolve().parent} has no {', '.join(missing)}, which {need}",
            "install the package llvm of the same version, such as llvm-19",
        )
    return binutils


def clang_version(clang: str | Path, remedy: str) -> tuple[int, ...]:
    """Return the version of a clang: major, minor, patch.

    Raises:
        UserError: `clang` does not run or is not clang; with the given remedy.
    """
    try:
        output = capture([clang, "--version"], 60, check=True).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise UserError(f"{clang} does not run: {error}", remedy) from None
    if (version := re.search(r"clang version (\d+)\.(\d+)\.(\d+)", output)) is None:
        raise UserError(f"{clang} is no clang: --version says {output[:80]!r}", remedy)
    return tuple(map(int, version.groups()))
