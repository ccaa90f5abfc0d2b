"""Compares the order in which linked files run initializers, and in which they have the entries of their tables."""

from __future__ import annotations

import itertools
import re
import struct
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from components.core.compiler.objects.elf import ORDERS, Elf, ElfError
from components.core.projects.flags.linked_files import find_binaries
from components.shrink.differences.linked_files import own_sections, read_elf

_ARRAYS = {".init_array": "initializers", ".fini_array": "finalizers"}
_OF_START_FILES = ("frame_dummy", "__do_global_dtors_aux", "init_cacheinfo")
_OF_GCCS_LTO = re.compile(r"_sub_[ID]_\d+_\d+.*")
"""The function that calls all initializers of one priority."""
_OF_CXX = "_GLOBAL__"
_FORMATS = {4: "I", 8: "Q"}


def moved_initializers(own: Path, files: Path, gcc_lto: bool) -> Iterator[str]:
    """Yield sentences on the linked files with initializers or finalizers that run in another order than in the user's
    build. Those of C++ have other names by gcc and clang, and are not compared.

    Args:
        own: what the user's own build linked.
        files: what the other linked.
        gcc_lto: whether gcc's LTO compiled it, which runs those of one priority backwards.
    """
    for name, path in sorted(find_binaries(own)):
        for section, what in _ARRAYS.items():
            before, after = (_functions(one, section) for one in (path, files / name))
            if gcc_lto and len(before) > len(after) and any(map(_OF_GCCS_LTO.fullmatch, after)):
                yield f"gcc's LTO runs the {len(before)} {what} of {name} in another order"
            elif moved := first_moved([one for one in before if not one.startswith(_OF_CXX)], after):
                yield f"{name} runs its {what} in another order: {moved[0]} ran before {moved[1]}"


def moved_entries(own: Path, files: Path) -> Iterator[str]:
    """Yield sentences on the linked files with a section of an own name whose variables are in another order."""
    for name, path in sorted(find_binaries(own)):
        for section in own_sections(path).keys() & own_sections(files / name).keys():
            before, after = (_variables(one, section) for one in (path, files / name))
            if moved := first_moved(before, after):
                yield f"section {section} of {name} has its entries in another order: {moved[0]} was before {moved[1]}"


def first_moved(before: Sequence[str], after: Sequence[str]) -> tuple[str, str] | None:
    """Return two names, each once in both lists, whose order differs."""
    counted = Counter(before), Counter(after)
    place = {name: at for at, name in enumerate(after) if all(one[name] == 1 for one in counted)}
    pairs = itertools.pairwise(name for name in before if name in place)
    return next((pair for pair in pairs if place[pair[0]] > place[pair[1]]), None)


def _variables(path: Path, section: str) -> list[str]:
    elf = read_elf(path)
    if elf is None:
        return []
    chosen = set(elf.sections_named(section.encode() + b"\0"))
    return [name for _, name in sorted((at, name) for at, index, name in _symbols(elf) if index in chosen)]


def _functions(path: Path, section: str) -> list[str]:
    """Return the functions in a section of pointers, but for those of start files."""
    elf = read_elf(path)
    sections = elf.sections_named(section.encode() + b"\0") if elf is not None else []
    if elf is None or not sections:
        return []
    order, size = ORDERS[elf.byte_order], elf.address_bytes
    start, content = elf.section_address(sections[0]), elf.contents(sections[0])
    values = struct.unpack_from(f"{order}{len(content) // size}{_FORMATS[size]}", content)
    names = {at: name for at, _, name in _symbols(elf)}
    addends = _addends(elf)
    found = (names.get(addends.get(start + size * index, value), "") for index, value in enumerate(values))
    return [name for name in found if name and name not in _OF_START_FILES]


def _addends(elf: Elf) -> dict[int, int]:
    """Return what the loader adds to the file's address in each place."""
    size = elf.address_bytes
    content = elf.section(".rela.dyn") or b""
    entry = struct.Struct(f"{ORDERS[elf.byte_order]}3{_FORMATS[size]}")
    usable = content[: len(content) // entry.size * entry.size]
    return {place: addend for place, _, addend in entry.iter_unpack(usable)}


def _symbols(elf: Elf) -> list[tuple[int, int, str]]:
    """Return the address, the section and the name of each symbol of a file that is not stripped, without the numbers
    that compilers append."""
    try:
        symbols = elf.symbols()
        names = elf.symbol_names(symbols.name)
    except ElfError:
        return []
    rows = zip(symbols.value.tolist(), symbols.section.tolist(), names, symbols.type.tolist(), strict=True)
    return [(at, section, name.partition(".")[0]) for at, section, name, kind in rows if name and kind in (1, 2)]
