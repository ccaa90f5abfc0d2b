"""Objects of all formats that the training reads: ELF, Mach-O (macOS, iOS) and COFF (Windows)."""

from __future__ import annotations

from typing import ClassVar, Protocol

from components.core.compiler.objects.coff import MACHINES, Coff
from components.core.compiler.objects.elf import Elf, ElfError
from components.core.compiler.objects.function_sizes import MAX_TEXT_BYTES, FunctionSizes, read_function_sizes
from components.core.compiler.objects.macho import MAGIC, MachO


class ForeignObject(Protocol):
    """A Mach-O or COFF object."""

    EMBEDDED: ClassVar[tuple[str, str]]
    """Sections with the bitcode and with the arguments that -fembed-bitcode=all writes."""

    def contents(self, name: str) -> memoryview | None:
        """Return the content of a section, None if there is none."""

    def text_size(self) -> int:
        """Return the size of the text in bytes."""

    def function_sizes(self) -> FunctionSizes:
        """Attribute the bytes of text to functions."""


def open_foreign(data: memoryview) -> ForeignObject | None:
    """Return a Mach-O or COFF object, None for other data. ObjectError if it is damaged."""
    begin = bytes(data[:4])
    if begin in MAGIC:
        return MachO(data)
    # COFF begins with the machine; of other formats none has these two bytes.
    return Coff(data) if int.from_bytes(begin[:2], "little") in MACHINES else None


def measure_object(
    data: memoryview, want_functions: bool, want_bodies: bool = False
) -> tuple[int, FunctionSizes | None]:
    """Return the text size in bytes and, if wanted, the sizes of the functions. ElfError if it is no object."""
    foreign = open_foreign(data)
    if foreign is not None:
        return foreign.text_size(), foreign.function_sizes() if want_functions else None
    elf = Elf(data)
    if (size := elf.text_size()) >= MAX_TEXT_BYTES:
        raise ElfError(f"the object has {size} bytes of text, which is too much")
    return size, read_function_sizes(elf, want_bodies) if want_functions else None
