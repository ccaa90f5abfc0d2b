"""The files that a build linked, measured and kept."""

from __future__ import annotations

import lzma
import os
import re
import shutil
import stat
from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from components.core.projects.flags.builds import stripped_content
from components.core.projects.flags.linked_files import copy_links, find_binaries, is_archive
from components.core.projects.flags.section_sizes import MeasuredBinary, measure
from components.core.projects.flags.types import Kind
from components.core.projects.runpath import needed_libraries, relocate_runpath
from components.core.projects.source_tree import is_cargo_directory
from components.platform.console import say
from components.platform.errors import UserError
from components.shrink.differences.linked_files import exported_symbols
from components.shrink.types import FileSizes

Identity = tuple[int, int]
"""Size and time of a file, in bytes and nanoseconds: a file that was written again has another."""
_LINKER_DEFINED = frozenset({"_init", "_fini", "__bss_start", "_edata", "_end", "__end__", "_start"})
"""Symbols that GNU ld exports and lld does not, or that are the start of a program."""
_START_FILE_EXPORTS = {243: frozenset({"main"})}
"""Instruction set (e_machine of ELF) -> symbols that GNU ld exports because the C library's start files use them."""
_BUILD_SCRIPT = re.compile(r"build[-_]script[-_].*")
_PROC_MACRO = re.compile(rb"rustc_proc_macro_decls_[0-9a-f]+")
_VARIANT = re.compile(r"(C[1-5]|D[0-5])(?=E|I)")
"""Constructors and destructors of the Itanium C++ ABI: gcc also exports those that no other module can need."""


@dataclass(frozen=True)
class LinkedFile:
    """A program or library that a build made.

    Attributes:
        exports: symbols that other modules can find in it, functions alone for a program.
        weak: the weak ones of a shared library, copies of inline functions mostly, which do not count as exports.
        unique: its symbols of which a process has one copy, whoever opens the library (STB_GNU_UNIQUE).
        libraries: the shared libraries that it needs.
        machine: instruction set (e_machine of ELF); None for a static library.
    """

    kind: Kind
    sizes: FileSizes
    exports: frozenset[str]
    weak: frozenset[str] = frozenset()
    unique: frozenset[str] = frozenset()
    libraries: frozenset[str] = frozenset()
    machine: int | None = None


def identities(root: Path) -> dict[Path, Identity]:
    """Return the binaries of a tree."""
    return {path: _identity(path) for _, path in find_binaries(root)}


def keep_linked_files(
    root: Path,
    kept: Path,
    before: Mapping[Path, Identity],
    binutils: Mapping[str, Path],
    machines: Set[int],
    compress: bool,
) -> tuple[dict[str, LinkedFile], tuple[str, ...]]:
    """Copy the linked files that a build made, or the static libraries if there are only these, and measure them.

    Files for other instruction sets than those of the target, if there are such, are tools of the build.

    Args:
        root: the tree of the build.
        kept: directory for the copies.
        before: the binaries that the tree had before the build.
        binutils: paths of `strip` and `nm`.
        machines: instruction sets (e_machine of ELF) of the target.
        compress: whether the files are also measured compressed.

    Returns:
        The files, and the names of those that still search for libraries in the build's directory.
    """
    built = {name: path for name, path in find_binaries(root) if before.get(path) != _identity(path)}
    binaries, links = _without_links(built)
    linked_files = {name: path for name, path in binaries.items() if not is_archive(path)}
    if products := {name: path for name, path in linked_files.items() if not _is_tool_of_cargo(root, path)}:
        linked_files = products
    measured: dict[str, tuple[Path, MeasuredBinary, FileSizes]] = {}
    for name, path in (linked_files or binaries).items():
        try:
            measured[name] = path, *_measure(path, binutils["strip"], compress)
        except UserError as error:
            say(f"left out: {error.problem}")
    if any(binary.machine in machines for _, binary, _ in measured.values()):
        measured = {name: one for name, one in measured.items() if one[1].machine in machines}
    files, unmoved = {}, []
    for name, (path, binary, sizes) in measured.items():
        copy = kept / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)
        copy.chmod(copy.stat().st_mode | stat.S_IWUSR)
        if _is_linked(binary) and not relocate_runpath(copy, path, root):
            unmoved.append(name)
        files[name] = _describe(copy, binary, sizes, binutils["nm"])
        copy_links(path, copy)
        for link in links.get(name, ()):
            (kept / link).parent.mkdir(parents=True, exist_ok=True)
            os.link(copy, kept / link)
    return files, tuple(unmoved)


def _is_linked(binary: MeasuredBinary) -> bool:
    return binary.kind != "static library"


def _measure(path: Path, strip: Path, compress: bool) -> tuple[MeasuredBinary, FileSizes]:
    """Return the sections and the sizes of a file. UserError if it cannot be read."""
    binary = measure(path)
    linked = _is_linked(binary)
    content = stripped_content(path, strip) if linked else b""
    return binary, FileSizes(
        stripped=len(content) if linked else binary.sizes.total,
        loaded=binary.sizes.total,
        text=binary.sizes.text,
        compressed=len(lzma.compress(content)) if linked and compress else 0,
    )


def _describe(file: Path, binary: MeasuredBinary, sizes: FileSizes, nm: Path) -> LinkedFile:
    symbols = exported_symbols(file, nm) if _is_linked(binary) else {}
    in_library = symbols if binary.kind == "shared library" else {}
    return LinkedFile(
        kind=binary.kind,
        sizes=sizes,
        machine=binary.machine,
        # Variables that a program exports are mostly copies of a library's (R_X86_64_COPY).
        exports=_of_kinds(symbols, "Ti" if binary.kind == "program" else "TiDBRGSA")
        - _START_FILE_EXPORTS.get(binary.machine or 0, frozenset()),
        weak=_of_kinds(in_library, "WV"),
        unique=_of_kinds(in_library, "u"),
        libraries=needed_libraries(file) if _is_linked(binary) else frozenset(),
    )


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _is_tool_of_cargo(root: Path, path: Path) -> bool:
    """Return whether a linked file below the root of a tree only runs in builds of Cargo: a build script, or a library
    of procedural macros, which rustc loads."""
    within = path.relative_to(root)
    if not any(is_cargo_directory(root / parent) for parent in within.parents):
        return False
    if "build" in within.parts and _BUILD_SCRIPT.fullmatch(path.name):
        return True
    return path.suffix == ".so" and _PROC_MACRO.search(path.read_bytes()) is not None


def _without_links(binaries: Mapping[str, Path]) -> tuple[dict[str, Path], dict[str, list[str]]]:
    """Return each file by one of its names, and by that one the other names of its hard links. It is the name with the
    fewest directories: Cargo's target/release/deps has the others."""
    groups: dict[tuple[int, int], list[str]] = {}
    for name, path in binaries.items():
        status = path.stat()
        groups.setdefault((status.st_dev, status.st_ino), []).append(name)
    links: dict[str, list[str]] = {}
    for names in groups.values():
        first, *others = sorted(names, key=lambda name: (name.count("/"), len(name), name))
        links[first] = others
    return {name: path for name, path in binaries.items() if name in links}, links


def copy_with_links(files: Path, into: Path) -> None:
    """Copy kept files to a new directory; hard links stay hard links."""
    copies: dict[tuple[int, int], str] = {}

    def copy(source: str, destination: str) -> str:
        status = os.stat(source)
        first = copies.setdefault((status.st_dev, status.st_ino), destination)
        if first != destination:
            os.link(first, destination)
        else:
            shutil.copy2(source, destination)
        return destination

    shutil.copytree(files, into, symlinks=True, copy_function=copy)


def _of_kinds(symbols: Mapping[str, str], kinds: str) -> frozenset[str]:
    """Return the symbols with one of these letters, without those that linkers define, and without the variants of
    constructors and destructors, of which gcc exports more."""
    names = (name for name, kind in symbols.items() if kind in kinds and not _is_linker_defined(name))
    return frozenset(_VARIANT.sub("", name) if name.startswith("_Z") else name for name in names)


def _is_linker_defined(symbol: str) -> bool:
    """Return whether a linker defines a symbol; GNU ld alone defines one for each version: V1@@V1."""
    name, _, version = symbol.partition("@")
    return name in _LINKER_DEFINED or name == version.lstrip("@")
