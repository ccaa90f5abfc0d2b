"""The types of linked files' sizes, of flags.json, and of its part in metrics.json. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from msgspec import Struct

from components.core.compiler.source_language import Language

Kind = Literal["program", "shared library", "static library", "object"]


@dataclass(frozen=True)
class SectionSizes:
    """Bytes of one program or library in its allocated sections, which are loaded, without debug data and symbols.

    Files of earlier versions do not have all groups of sections.

    Attributes:
        text: machine code (.text*).
        rodata: constants.
        eh_frame: unwind tables (.eh_frame, .eh_frame_hdr).
        gcc_except_table: exception tables (LSDA): cleanups and catch clauses.
        dynstr: names for the dynamic linker, including those of visible weak functions.
        data: initialised writable data, including .data.rel.ro and .got.
        other: every other allocated section with bytes in the file (dynamic symbols, relocations, .plt, .init, notes,
            ...).
        total: the sum of the above, about the size of the stripped file, without zero-initialised data (.bss).
        llvm_size_text: text as llvm-size counts it: allocated, and executable or not writable.
    """

    text: int = 0
    rodata: int = 0
    eh_frame: int = 0
    gcc_except_table: int = 0
    dynstr: int = 0
    data: int = 0
    other: int = 0
    total: int = 0
    llvm_size_text: int = 0

    def __add__(self, other: SectionSizes) -> SectionSizes:
        mine, theirs = asdict(self), asdict(other)
        return SectionSizes(**{name: mine[name] + theirs[name] for name in mine})


CompilerOfRow = Literal["stock", "heuristic", "policy", "plan", "gcc", "newest"]
"""Stock clang; the release clang without its policy; with its policy; with its policy and a plan; the user's gcc; the
newest clang that is installed, if it is newer than stock clang."""


class FlagRowEntry(Struct, kw_only=True):
    """A row of flags.

    Attributes:
        name: as users type it. gives: short description.
        compile_flags, link_flags: flags of the first of its compilers.
        assumes: what the flags assume; empty if every program behaves as without them.
    """

    name: str
    gives: str
    compile_flags: list[str]
    link_flags: list[str]
    assumes: list[str]


class RowSizes(Struct, kw_only=True):
    """Sizes in bytes of one program, or of several in sum, under one row.

    Attributes:
        stripped: the file as llvm-strip leaves it.
        llvm_size_text: text as llvm-size counts it.
        text: machine code (.text*).
        unwind: unwind and exception tables.
        loaded: all sections that are loaded; 0 in files of earlier versions.
    """

    stripped: int = 0
    llvm_size_text: int = 0
    text: int = 0
    unwind: int = 0
    loaded: int = 0

    def __add__(self, other: RowSizes) -> RowSizes:
        return RowSizes(**{name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__})


class RowResult(Struct, kw_only=True):
    """One program under one row, built by one compiler: its sizes, or why there are none."""

    row: str
    compiler: CompilerOfRow
    sizes: RowSizes | None = None
    failure: str = ""


def smallest_by(results: Sequence[RowResult], compiler: CompilerOfRow) -> RowResult | None:
    """Return the smallest of the results of a compiler; None if it built none."""
    return smallest([result for result in results if result.compiler == compiler])


def smallest(results: Sequence[RowResult]) -> RowResult | None:
    """Return the result with the smallest stripped file, of equal ones, since files are padded, the one with the least
    code, of equal ones the first: it needs the fewest flags."""
    built = [
        (result.sizes.stripped, result.sizes.text, index)
        for index, result in enumerate(results)
        if result.sizes is not None
    ]
    return results[min(built)[-1]] if built else None


class FlagsProgram(Struct, kw_only=True):
    """One program under all rows.

    Attributes:
        project: the recipe's name, or that of the source directory.
        name: path relative to the build directory.
        language: c++ if it needs a C++ library at run time.
        results: in the order of the rows; those of a compiler in the order of CompilerOfRow.
        best_stock: the smallest stripped file of stock clang; None if stock clang builds no row.
        best: the smallest stripped file of all compilers.
    """

    project: str
    name: str
    language: Language
    results: list[RowResult]
    best_stock: RowResult | None
    best: RowResult


class FlagsTotal(Struct, kw_only=True):
    """Programs of a language, each under its best row of stock clang and under its best row of all.

    Attributes:
        programs: number of programs that stock clang builds under some row.
        best_stock, best: sizes in sum.
        reduction_percent: reduction of the stripped files; text_reduction_percent: of .text.
        median_reduction_percent: median over the programs of the reduction of the stripped file.
    """

    programs: int
    best_stock: RowSizes
    best: RowSizes
    reduction_percent: float | None
    text_reduction_percent: float | None
    median_reduction_percent: float | None


class FlagsProject(Struct, kw_only=True):
    """The row that is smallest for the programs of a project in sum, since a build has one set of flags.

    Attributes:
        row, compiler: among those that build all programs that can be built.
        build: what to put into the build, as a shell reads it: CC, CXX, CFLAGS, CXXFLAGS, LDFLAGS, for LTO also AR, NM
            and RANLIB.
        assumes: what the row assumes.
    """

    project: str
    row: str
    compiler: CompilerOfRow
    build: str
    assumes: list[str]


class FlagsComparison(Struct):
    """Programs under rows of flags: the content of flags.json. totals: "all", "c" or "c++" -> sum."""

    rows: list[FlagRowEntry] = []
    programs: list[FlagsProgram] = []
    projects: list[FlagsProject] = []
    totals: dict[str, FlagsTotal] = {}
