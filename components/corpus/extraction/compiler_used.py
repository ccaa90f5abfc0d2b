"""Restores llvm.compiler.used, the list of what the compiler must keep: clang drops it from embedded bitcode.

Without it a replay drops functions and variables with __attribute__((used)) that nothing refers to: callbacks of inline
assembly, tables that a linker script collects. The object still has them, and its symbol table says so. What
LLVM's GlobalDCE removes from the bitcode, but the object has, was in the list; so was a local function that nothing
in the object refers to.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from components.core.compiler.objects.elf import Elf, Symbols
from components.core.formats.bitcode_symbols import read_symbols
from components.platform.processes import supervision
from components.platform.storage.manifest import list_names

_STB_LOCAL, _STB_WEAK = 0, 2
_STT_OBJECT, _STT_FUNC, _STT_SECTION = 1, 2, 3
_EM_X86_64 = 62
_NOT_A_USE = (
    b".eh_frame\0",
    b"__patchable_function_entries\0",
    b"xray_",
    b".llvm_",
    b"__mcount_loc\0",
    b"__llvm_prf_",
    b"__sancov_",
    b"sanmd_",
    b"asan_globals\0",
    b"hwasan_globals\0",
)
"""Allocated sections in which a compiler or its instrumentation lists functions and variables: nothing calls them."""
_PC_BYTES = 8
"""Maximum distance between the word of a relocation relative to the program counter and the end of its instruction."""
_SHORT_JUMPS = (0xEB, *range(0x70, 0x80))
_TIMEOUT_S = 120.0
_SPECIAL = re.compile(rb"[^-A-Za-z0-9$._]")
_DEFINITION = re.compile(r'^(?:define\b[^@]*|(?=@))@("(?:[^"]*)"|[-A-Za-z0-9$._]+)', re.MULTILINE)


class RestoreError(Exception):
    """The list cannot be restored; the message says why."""


class CompilerUsed:
    """Restores the list in the modules of one object: one, or those that were linked to it.

    The object is looked at once, however many modules it has.
    """

    def __init__(self, elf: Elf, modules: Sequence[memoryview]) -> None:
        """Make it for an object and the bitcode of all its modules: one, or those that were linked to it."""
        self._elf = elf
        self._modules = modules

    @cached_property
    def _unreferenced(self) -> tuple[frozenset[str], frozenset[str]]:
        return _find_unreferenced(self._elf)

    @cached_property
    def _shared_names(self) -> frozenset[str]:
        """Names that several modules define, each its own, of what a compiler may drop."""
        count = Counter(name for module in self._modules for name in read_symbols(bytes(module)).discardable)
        return frozenset(name for name, number in count.items() if number > 1)

    def restore(self, bitcode: memoryview) -> bytes | memoryview:
        """Return the bitcode of a module with the list, unchanged if nothing is missing in it.

        Raises:
            ElfError: the object has no symbol table.
            RestoreError: LLVM's opt of the module's version is not installed, or fails; or something that several
                modules define is to be kept.
        """
        if not self._elf.relocatable or not any(self._unreferenced):
            return bitcode
        symbols = read_symbols(bytes(bitcode))
        certain, possible = (names & symbols.discardable for names in self._unreferenced)
        if not certain and not possible:
            return bitcode
        opt = shutil.which(f"opt-{symbols.llvm_major}")
        if opt is None:
            if not certain:
                return bitcode
            raise RestoreError(
                f"opt-{symbols.llvm_major} is missing, which keeps {list_names(sorted(certain), 3)} as "
                f"__attribute__((used)) does: apt-get install llvm-{symbols.llvm_major}"
            )
        names = certain
        if possible:
            text = _run(opt, ["-passes=globaldce", "-S"], bytes(bitcode))
            # Survivors are defined or declared at the start of a line of LLVM's textual form.
            names |= possible - set(map(_unquote, _DEFINITION.findall(text.decode("utf-8", "surrogateescape"))))
        if not names:
            return bitcode
        if len(self._modules) > 1 and (unknown := names & self._shared_names):
            raise RestoreError(
                f"several modules of the linked object define {list_names(sorted(unknown), 3)}, and which one is "
                "kept is unknown: extract the objects that it was linked from"
            )
        values = ", ".join(f"ptr @{_quote(name)}" for name in sorted(names))
        used = f'\n@llvm.compiler.used = appending global [{len(names)} x ptr] [{values}], section "llvm.metadata"\n'
        try:
            return _append(opt, bytes(bitcode), used, ["-preserve-ll-uselistorder"])
        except RestoreError:  # the recorded order of a symbol's uses has one use less
            return _append(opt, bytes(bitcode), used, [])


def _append(opt: str, bitcode: bytes, used: str, flags: list[str]) -> bytes:
    text = _run(opt, ["-passes=verify", "-S", *flags], bitcode)
    return _run(opt, ["-passes=verify", "-preserve-bc-uselistorder"], text + used.encode("utf-8", "surrogateescape"))


def _run(opt: str, flags: list[str], content: bytes) -> bytes:
    """Run opt on a module, confined as a compile is: objects may come from elsewhere."""
    with TemporaryDirectory(prefix="mlgo-opt-") as name:
        source, result = Path(name, "in"), Path(name, "out")
        source.write_bytes(content)
        try:
            done = supervision.run([opt, *flags, source, "-o", result], _TIMEOUT_S, writable=Path(name))
        except supervision.ProcessTimeout:
            raise RestoreError(f"{opt} did not finish within {_TIMEOUT_S:.0f} s") from None
        done.require_disk_space(Path(name))
        if done.returncode != 0 or not result.exists():  # an empty file runs as a script and succeeds
            messages = done.stderr.strip().splitlines()
            raise RestoreError(f"{opt} cannot read it: {messages[0] if messages else 'no message'}")
        return result.read_bytes()


def _quote(name: str) -> str:
    escaped = _SPECIAL.sub(lambda match: f"\\{match[0][0]:02X}".encode(), name.encode("utf-8", "surrogateescape"))
    return f'"{escaped.decode()}"'


def _unquote(name: str) -> str:
    raw = re.sub(rb"\\([0-9A-Fa-f]{2})", lambda m: bytes([int(m[1], 16)]), name.strip('"').encode())
    return raw.decode("utf-8", "surrogateescape")


def _find_unreferenced(elf: Elf) -> tuple[frozenset[str], frozenset[str]]:
    """Return local and weak symbols that nothing in an object refers to: those that are certain, functions of x86-64,
    whose calls within a section are recognized by their bytes, and all others, also those that only a short jump may
    refer to."""
    symbols = elf.symbols()
    function = symbols.type == _STT_FUNC
    local = symbols.binding == _STB_LOCAL
    candidate = (function | (symbols.type == _STT_OBJECT)) & (local | (symbols.binding == _STB_WEAK))
    candidate &= (symbols.section > 0) & (symbols.size > 0)
    if not candidate.any():
        return frozenset(), frozenset()
    sections = elf.allocated_sections()
    for prefix in _NOT_A_USE:
        sections[elf.sections_named(prefix)] = False
    relocations = elf.relocations(sections, len(symbols))
    # A recursive function refers to itself.
    target = relocations.symbol
    own = relocations.section == symbols.section[target]
    own &= (relocations.offset >= symbols.value[target]) & (
        relocations.offset < symbols.value[target] + symbols.size[target]
    )
    candidate[target[~own]] = False
    through = np.flatnonzero(symbols.type[target] == _STT_SECTION)
    by_section: dict[int, NDArray[np.int64]] = {}
    named = symbols.section[target[through]]
    for section in np.unique(named).tolist():
        by_section[section] = np.sort(relocations.addend[through[named == section]])
    for index in np.flatnonzero(candidate).tolist():
        addends = by_section.get(int(symbols.section[index]))
        if addends is None:
            continue
        first = symbols.value[index] - _PC_BYTES
        last = symbols.value[index] + (0 if function[index] else symbols.size[index])
        candidate[index] = np.searchsorted(addends, first) == np.searchsorted(addends, last, side="right")
    certain = candidate & function & local
    if elf.machine == _EM_X86_64:
        for section in np.unique(symbols.section[certain]).tolist():
            relocated = relocations.offset[relocations.section == section]
            _remove_called(elf, section, symbols, relocated, certain, candidate)
    else:
        certain[:] = False
    found, possible = (frozenset(elf.symbol_names(symbols.name[which])) for which in (certain, candidate & ~certain))
    return found, possible


def _remove_called(
    elf: Elf,
    section: int,
    symbols: Symbols,
    relocated: NDArray[np.int64],
    certain: NDArray[np.bool_],
    candidate: NDArray[np.bool_],
) -> None:
    """Remove functions that a call or jump in their section of x86-64 code goes to: the assembler needs no relocation.

    Any four bytes may be the distance of a call, except those with a part of a relocated word, and those of the padding
    between functions: a nop ends with zeros, the distance to the function that follows. Short jumps have one byte, so a
    function remains possible.

    Args:
        relocated: offsets of the section's relocations.
    """
    code = np.frombuffer(elf.contents(section), np.uint8).astype(np.int64)
    if len(code) < 4:
        return
    within = np.zeros(len(code), bool)
    for index in np.flatnonzero((symbols.section == section) & (symbols.type == _STT_FUNC)).tolist():
        within[int(symbols.value[index]) : int(symbols.value[index] + symbols.size[index])] = True
    is_distance = within[:-3] & within[3:]
    for shift in range(-3, 4):
        overlapping = relocated + shift
        is_distance[overlapping[(overlapping >= 0) & (overlapping < len(is_distance))]] = False
    distance = code[:-3] | code[1:-2] << 8 | code[2:-1] << 16 | code[3:] << 24
    near = np.arange(len(distance)) + 4 + np.where(distance >= 1 << 31, distance - (1 << 32), distance)
    jumps = np.flatnonzero(np.isin(code[:-1], _SHORT_JUMPS))
    short = jumps + 2 + np.where(code[jumps + 1] >= 128, code[jumps + 1] - 256, code[jumps + 1])
    for index in np.flatnonzero(certain & (symbols.section == section)).tolist():
        begin, end = int(symbols.value[index]), int(symbols.value[index] + symbols.size[index])
        calls = np.flatnonzero((near == begin) & is_distance)
        if ((calls < begin) | (calls >= end)).any():
            certain[index] = candidate[index] = False
            continue
        from_jumps = jumps[short == begin]
        if ((from_jumps < begin) | (from_jumps >= end)).any():
            certain[index] = False
