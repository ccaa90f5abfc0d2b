"""Formats rows of flags as tables and lines for all reports."""

from __future__ import annotations

from collections import Counter

from components.core.projects.flags.types import CompilerOfRow, FlagsComparison, FlagsProgram, RowSizes, smallest_by
from components.evaluation.report.formatting import change

COMPILERS: dict[CompilerOfRow, str] = {
    "stock": "stock clang",
    "heuristic": "release clang, no policy",
    "policy": "release clang",
    "plan": "release clang, plan",
    "gcc": "gcc",
    "newest": "newest clang",
}
LANGUAGES = {"all": "all programs", "c": "C", "c++": "C++"}
PROGRAM_COLUMNS = ["program", "language", "best stock row", "bytes", ".text", "best of all", "bytes", ".text"]


def row_columns(compared: FlagsComparison) -> list[str]:
    return ["row", "gives", *(f"{COMPILERS[compiler]}: file (.text)" for compiler in _compilers(compared))]


def row_rows(compared: FlagsComparison, program: FlagsProgram) -> list[list[str]]:
    """Return a row for each row of flags: bytes of a program by each compiler, and the change against the best row of
    stock clang."""
    results = {(result.row, result.compiler): result for result in program.results}
    baseline = program.best_stock.sizes.stripped if program.best_stock and program.best_stock.sizes else 0
    rows = []
    for row in compared.rows:
        cells = []
        for compiler in _compilers(compared):
            result = results.get((row.name, compiler))
            if result is None:
                cells.append("–")
            elif result.sizes is None:
                cells.append(f"failed: {result.failure[:80]}")
            else:
                best = " ←" if (result.row, result.compiler) == (program.best.row, program.best.compiler) else ""
                cells.append(f"{_bytes(result.sizes)} {_against(result.sizes.stripped, baseline)}{best}")
        rows.append([f"{row.name} *" if row.assumes else row.name, row.gives, *cells])
    return rows


def program_rows(compared: FlagsComparison) -> list[list[str]]:
    rows = []
    for program in compared.programs:
        stock, best = program.best_stock, program.best
        assert best.sizes is not None
        baseline = stock.sizes if stock else None
        cells = [
            *([stock.row, f"{baseline.stripped:,}", f"{baseline.text:,}"] if stock and baseline else ["–", "–", "–"]),
            f"{best.row}, {COMPILERS[best.compiler]}",
            f"{best.sizes.stripped:,} {_against(best.sizes.stripped, baseline.stripped if baseline else 0)}",
            f"{best.sizes.text:,} {_against(best.sizes.text, baseline.text if baseline else 0)}",
        ]
        rows.append([f"{program.project}/{program.name}", LANGUAGES.get(program.language, program.language), *cells])
    return rows


def compiler_lines(compared: FlagsComparison) -> list[str]:
    """Return a line for each language: the best rows of each compiler, over the programs that all compilers build."""
    compilers = _compilers(compared)
    by_language: dict[str, list[dict[CompilerOfRow, int]]] = {}
    count: Counter[str] = Counter(program.language for program in compared.programs)
    for program in compared.programs:
        best = {compiler: smallest_by(program.results, compiler) for compiler in compilers}
        sizes = {compiler: result.sizes.stripped for compiler, result in best.items() if result and result.sizes}
        if len(sizes) == len(compilers):
            by_language.setdefault(program.language, []).append(sizes)
    lines = []
    for language, programs in sorted(by_language.items()):
        sums = {compiler: sum(sizes[compiler] for sizes in programs) for compiler in compilers}
        wins = {compiler: sum(min(sizes.values()) == sizes[compiler] for sizes in programs) for compiler in compilers}
        parts = [
            f"{COMPILERS[compiler]} {sums[compiler]:,} {_against(sums[compiler], sums[compilers[0]])}"
            f" ({wins[compiler]} smallest)"
            for compiler in compilers
        ]
        title = f"{LANGUAGES.get(language, language)} ({len(programs)} of {count[language]})"
        lines.append(f"{title}, best rows in bytes: {', '.join(parts)}")
    return lines


def total_lines(compared: FlagsComparison) -> list[str]:
    """Return a line for each language: the best rows of all against the best rows of stock clang."""
    return [
        f"{LANGUAGES.get(language, language)} ({total.programs}), best of all against the best stock row: "
        f"stripped files {change(total.reduction_percent)} ({total.best_stock.stripped:,} to "
        f"{total.best.stripped:,} bytes, median {change(total.median_reduction_percent)}), "
        f".text {change(total.text_reduction_percent)}"
        for language, total in compared.totals.items()
    ]


def assumption_lines(compared: FlagsComparison) -> list[str]:
    rows: dict[str, list[str]] = {}
    for row in compared.rows:
        for assumption in row.assumes:
            rows.setdefault(assumption, []).append(row.name)
    return [f"* {', '.join(names)}: {assumption}" for assumption, names in rows.items()]


def build_lines(compared: FlagsComparison) -> list[str]:
    return [
        f"{project.project}, row {project.row}, {COMPILERS[project.compiler]}: {project.build}"
        for project in compared.projects
    ]


def _compilers(compared: FlagsComparison) -> list[CompilerOfRow]:
    present = {result.compiler for program in compared.programs for result in program.results}
    return [compiler for compiler in COMPILERS if compiler in present]


def _bytes(sizes: RowSizes) -> str:
    return f"{sizes.stripped:,} ({sizes.text:,})"


def _against(size: int, baseline: int) -> str:
    return f"{100 * (size / baseline - 1):+.2f}%" if baseline else ""
