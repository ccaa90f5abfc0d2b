"""Sizes of a program or library by the purpose of its ELF sections, as a user ships it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from components.core.compiler.objects.archive import is_archive, member_contents
from components.core.compiler.objects.elf import ET_DYN, ET_REL, Elf
from components.core.compiler.source_language import Language
from components.core.projects.flags.types import Kind, SectionSizes
from components.platform.errors import UserError

_EMBEDDED = (".llvmbc", ".llvmcmd")
_CXX_LIBRARIES = (b"libstdc++.so", b"libc++.so")
_GROUPS = (
    # Prefixes of section names; the first match counts. Unwind tables are separate: inlining changes their number.
    ("eh_frame", (".eh_frame",)),
    ("gcc_except_table", (".gcc_except_table",)),
    ("text", (".text",)),
    ("dynstr", (".dynstr",)),
    ("rodata", (".rodata", ".lrodata")),
    ("data", (".data", ".tdata", ".init_array", ".fini_array", ".ctors", ".dtors", ".got", ".ldata")),
    ("bss", (".bss", ".tbss", ".lbss")),
)


@dataclass(frozen=True)
class MeasuredBinary:
    """Kind and sizes of one file that a build made.

    Attributes:
        kind: static libraries are not linked.
        sizes: sizes; for a static library, the sum over its members.
        language: c++ if it needs a C++ library at run time, else c; None if it is not linked.
        machine: e_machine, the instruction set (EM_*); None for a static library.
        bitcode: bytes of bitcode and compile commands that objects embedded, which are no part of the sizes.
    """

    kind: Kind
    sizes: SectionSizes
    language: Language | None = None
    machine: int | None = None
    bitcode: int = 0


def measure(path: Path) -> MeasuredBinary:
    """Determine the kind and the sizes of the binary `path`.

    Raises:
        UserError: not an ELF file or a static library of such files, or damaged; names the file.
    """
    data = memoryview(path.read_bytes())
    try:
        if is_archive(data):
            sizes = SectionSizes()
            for member in member_contents(data):
                sizes += _elf_sizes(Elf(member))
            return MeasuredBinary("static library", sizes)
        elf = Elf(data)
        kind = _kind(elf)
        names = bytes(elf.section(".dynstr") or b"") if kind != "object" else b""
        language: Language = "c++" if any(library in names for library in _CXX_LIBRARIES) else "c"
        bitcode = sum(size for name, size in elf.section_sizes().items() if name in _EMBEDDED)
        return MeasuredBinary(kind, _elf_sizes(elf), None if kind == "object" else language, elf.machine, bitcode)
    except UserError as error:
        raise UserError(f"{path}: {error.problem}", error.remedy) from None


def section_group(section: str) -> str:
    """Return the column of a section's bytes: an attribute of `SectionSizes`, or bss."""
    for group, prefixes in _GROUPS:
        # ".data" matches ".data" and ".data.rel.ro"; ".eh_frame" matches ".eh_frame_hdr"; ".init" not ".init_array".
        if any(section == prefix or section.startswith((f"{prefix}.", f"{prefix}_hdr")) for prefix in prefixes):
            return group
    return "other"


def _elf_sizes(elf: Elf) -> SectionSizes:
    columns = dict.fromkeys((*(group for group, _ in _GROUPS), "other"), 0)
    for name, size_bytes in elf.section_sizes(allocated_only=True, in_file_only=True).items():
        columns[section_group(name)] += size_bytes
    del columns["bss"]  # has no bytes in the file, and no policy changes it
    return SectionSizes(**columns, total=sum(columns.values()), llvm_size_text=elf.text_size())


def _kind(elf: Elf) -> Kind:
    if elf.type == ET_REL:
        return "object"
    # A position-independent program has the type of a shared library, but only programs name an interpreter.
    linked_as_library = elf.type == ET_DYN and ".interp" not in elf.section_sizes(allocated_only=True)
    return "shared library" if linked_as_library else "program"
