"""Compares the linked files of two builds: sections, symbols, and paths of the build."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from components.core.compiler.objects.archive import is_archive
from components.core.compiler.objects.elf import Elf
from components.core.projects.flags.linked_files import find_binaries
from components.core.projects.runpath import has_search_path
from components.platform.errors import UserError
from components.platform.processes.output import capture

_NM_TIMEOUT_S = 300.0
_OF_TOOLS = re.compile(
    r"\.(?:text|rodata|l?data|bss|tdata|tbss|lrodata|lbss|sdata2?|sbss2?|srodata|toc|opd|data1|rodata1|init|fini|ctors|dtors|jcr|plt|got|iplt"
    r"|igot|rela?|relr|dynamic|dynsym|dynstr|dynbss|interp|hash|comment|eh_frame|eh_frame_hdr|gcc_except_table"
    r"|note\.(?:gnu|ABI-tag|GNU-stack|stapsdt|llvm|package)|exception_ranges|tm_clone_table"
    r"|init_array|fini_array|preinit_array|relro_padding|bss\.rel\.ro|debug\w*"
    r"|gnu|stapsdt|probes|fini_array|eh_framehdr|shstrtab|symtab|strtab|copyrel|sframe|ARM|MIPS|riscv|glink|branch_lt)(?:[._].*)?"
    r"|__libc_\w+|__patchable_function_entries|__llvm_\w+|\.llvm.*|__mcount_loc|__xray\w*|xray\w*|__asan\w*|asan\w*"
    r"|__sancov\w*"
)
"""Sections that compilers, linkers and the C library make."""
_CLANG, _GCC = b"clang version ", b"GCC: "
_GCC_VERSION = re.compile(rb"GCC: \([^)]*\) (\d+(?:\.\d+)*)")
_OLD_SECTIONS = {".ctors": ".init_array", ".dtors": ".fini_array"}
_SOURCES = tuple(b".c .cc .cpp .cxx .C .c++ .h .hh .hpp .hxx .H .inc .inl .ipp .tcc .y .yy .l .ll .def .S .s".split())
"""Ends of the names of sources, which __FILE__ puts into messages."""


def made_by_clang(files: Path, root: Path) -> bool:
    """Return whether the user's own compiler is a clang: .comment of a linked file names each compiler, and always the
    gcc that made the C library's start files. If gcc made an object of the build, clang's code is of a library that
    was there before.

    Args:
        files: what the build linked.
        root: the tree that was built, which had no objects before.
    """
    return any(_CLANG in _comment(path) for _, path in find_binaries(files)) and not any(
        _GCC in comment and _CLANG not in comment for comment in map(_comment, _objects(root))
    )


def gcc_version(files: Path) -> str:
    """Return the version of the gcc that .comment of a linked file names, "" if there is none."""
    matches = (_GCC_VERSION.search(_comment(path)) for _, path in find_binaries(files))
    return next((match[1].decode() for match in matches if match is not None), "")


def _objects(root: Path) -> Iterator[Path]:
    for directory, _, files in os.walk(root):
        paths = (Path(directory, name) for name in files if name.endswith((".o", ".lo", ".obj")))
        yield from filter(Path.is_file, paths)


def _comment(path: Path) -> bytes:
    elf = read_elf(path)
    comment = elf.section(".comment") if elf is not None else None
    return bytes(comment) if comment is not None else b""


def uncalled_sections(own: Path, files: Path) -> list[str]:
    """Return sentences on the linked files with functions in .ctors or .dtors, of which GNU ld makes entries of
    .init_array and .fini_array. lld does not, and nothing calls them."""
    found = []
    for name, path in sorted(find_binaries(own)):
        before, after = (_section_names(one) for one in (path, files / name))
        found += [
            f"nothing calls the functions in section {section} of {name}, which GNU ld moves to {place}"
            for section, place in _OLD_SECTIONS.items()
            if section in after - before
        ]
    return found


def _section_names(path: Path) -> set[str]:
    elf = read_elf(path)
    sizes = elf.section_sizes(allocated_only=True) if elf is not None else {}
    return {name for name, size in sizes.items() if size}


def lost_sections(own: Path, files: Path) -> list[str]:
    """Return sentences on the sections of own names that the user's build has, and the other not, or fewer data."""
    found = []
    for name, path in sorted(find_binaries(own)):
        before, after = own_sections(path), own_sections(files / name)
        for section, size in before.items():
            if section not in after:
                found.append(f"{name} has no section {section} any more")
            elif after[section] < size:
                found.append(f"section {section} of {name} has {after[section]:,} bytes, {size:,} in your build")
    return found


def own_sections(path: Path) -> dict[str, int]:
    """Return the bytes of the sections of own names in a linked file, 1 for those with code."""
    elf = read_elf(path)
    if elf is None:
        return {}
    sizes = elf.section_sizes(allocated_only=True)
    _, is_code = elf.text_sections()
    # Compilers make other code of the same functions.
    sizes |= {elf.section_name(index): 1 for index in is_code.nonzero()[0].tolist()}
    return {name: size for name, size in sizes.items() if size and not _OF_TOOLS.fullmatch(name)}


def lost_search_paths(own: Path, files: Path) -> list[str]:
    """Return sentences on the linked files that say in the user's build where their libraries are, and in the other do
    not: GNU ld also takes that from the variable LD_RUN_PATH."""
    return [
        f"{name} does not say where its libraries are (DT_RUNPATH), as if LD_RUN_PATH did, which only GNU ld reads"
        for name, path in sorted(find_binaries(own))
        if all(map(read_elf, (path, files / name))) and has_search_path(path) > has_search_path(files / name)
    ]


def named_paths(files: Path, root: Path) -> list[tuple[str, str]]:
    """Return the linked files whose loaded sections name files of the build, but for its sources, each with one path
    relative to `root`."""
    found = []
    named = re.compile(re.escape(str(root).encode()) + rb"(?:/(?P<rest>[^\0\n\"':;, ]*))?")
    wides = [f"{root}/".encode(encoding) for encoding in ("utf-16-le", "utf-32-le")]
    for name, path in sorted(find_binaries(files)):
        elf = read_elf(path)
        sections = elf.section_sizes(allocated_only=True, in_file_only=True) if elf is not None else ()
        texts = [elf.section(section) for section in sections] if elf is not None else []
        matches = (match["rest"] or b"" for text in texts if text is not None for match in named.finditer(bytes(text)))
        rest = next((rest for rest in matches if not rest.endswith(_SOURCES)), None)
        if rest is None and any(bytes(text).find(wide) >= 0 for text in texts if text is not None for wide in wides):
            rest = b""
        if rest is not None:
            found.append((name, rest.decode("utf-8", "replace")))
    return found


def defined_symbols(path: Path, nm: Path) -> frozenset[str]:
    """Return the symbols that a linked file defines, exported or not; none if it is stripped."""
    return frozenset(_lines(path, nm))


def is_program(path: Path) -> bool:
    """Return whether a linked file is a program."""
    elf = read_elf(path)
    return elf is not None and ".interp" in elf.section_sizes(allocated_only=True)


def exported_functions(path: Path, nm: Path) -> frozenset[str]:
    """Return the functions that a linked file exports, but for weak ones."""
    return frozenset(name.partition("@")[0] for name, kind in exported_symbols(path, nm).items() if kind == "T")


def exported_symbols(path: Path, nm: Path) -> dict[str, str]:
    """Return the symbols that a linked file exports, with the letters of nm."""
    return {name: kind for name, (kind, _) in _lines(path, nm, "-D").items()}


def symbol_addresses(path: Path, nm: Path) -> dict[str, tuple[int, bool]]:
    """Return the address of each symbol that a linked file defines, and whether it is in code; none if it is
    stripped."""
    return {name: (int(value, 16), kind in "Tt") for name, (kind, value) in _lines(path, nm).items() if value}


def _lines(path: Path, nm: Path, *options: str) -> dict[str, tuple[str, str]]:
    """Return the letter and the hexadecimal value that nm has for each symbol."""
    command: list[str | Path] = [nm, *options, "-P", "--defined-only", path]
    done = capture(command, _NM_TIMEOUT_S, "surrogateescape", env={**os.environ, "LC_ALL": "C"})
    lines = [line.split() for line in done.stdout.splitlines()]
    return {fields[0]: (fields[1], fields[2] if len(fields) > 2 else "") for fields in lines if len(fields) >= 2}


def read_elf(path: Path) -> Elf | None:
    """Return a linked file, None if it is none, or missing."""
    try:
        data = memoryview(path.read_bytes())
        return None if is_archive(data) else Elf(data)
    except (FileNotFoundError, UserError):
        return None
