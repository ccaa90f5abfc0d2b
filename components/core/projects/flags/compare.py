"""Builds programs under rows of flags, and finds the smallest of stock clang and of all."""

from __future__ import annotations

import csv
import io
import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from components.core.compiler.clang_programs import cxx_driver
from components.core.compiler.source_language import Language
from components.core.formats.toolchain import Toolchain
from components.core.objectives.size import reduction_percent
from components.core.projects.flags.builds import MISSING, BuildSetup, MeasuredProgram, Project, describe_failure
from components.core.projects.flags.rows import TITLES, FlagRow
from components.core.projects.flags.types import (
    CompilerOfRow,
    FlagRowEntry,
    FlagsComparison,
    FlagsProgram,
    FlagsProject,
    FlagsTotal,
    RowResult,
    RowSizes,
    smallest,
    smallest_by,
)
from components.platform.console import say
from components.platform.errors import UserError

_COLUMNS = "project program language row compiler stripped_bytes llvm_size_text text unwind_bytes loaded_bytes status"


def compare_flags(
    projects: Sequence[Project], rows: Sequence[FlagRow], stock_clang: Path, release: Toolchain, setup: BuildSetup
) -> FlagsComparison:
    """Build every project under every row with each of the row's compilers, and measure its programs.

    A build that fails, or that does not make a program, is a result without sizes.

    Raises:
        UserError: no program was built under any row.
    """
    programs: list[FlagsProgram] = []
    best_builds: list[FlagsProject] = []
    failures: dict[str, str] = {}
    total, done = len(projects) * sum(len(row.compilers) for row in rows), 0
    for project in projects:
        results: dict[tuple[str, CompilerOfRow], dict[str, MeasuredProgram | str] | str] = {}
        for row in rows:
            for compiler in row.compilers:
                done += 1
                variant = row.variant(compiler, stock_clang, release)
                say(f"build {done} of {total}: {project.name} with {variant.title}")
                try:
                    results[row.name, compiler] = project.build(variant, setup)
                except UserError as error:
                    failures.setdefault(project.name, error.problem)
                    results[row.name, compiler] = failure = describe_failure(error)
                    say(f"{project.name} with {variant.title} failed: {failure}")
        measured = list(_programs(project.name, results))
        programs += measured
        if measured:
            best_builds.append(_best_build(project.name, measured, rows, stock_clang, release, setup.binutils))
    if not programs:
        name, problem = next(iter(failures.items()), ("", "no program was named"))
        raise UserError(
            f"no row builds a program; {name}: {problem}",
            "build the project by hand with stock clang first, or correct the names of the programs",
        )
    entries = [
        FlagRowEntry(
            name=row.name,
            gives=row.gives,
            compile_flags=variant.flags,
            link_flags=list(variant.link_flags),
            assumes=list(row.assumes),
        )
        for row in rows
        for variant in (row.variant(row.compilers[0], stock_clang, release),)
    ]
    return FlagsComparison(entries, programs, best_builds, flags_totals(programs))


def flags_totals(programs: Sequence[FlagsProgram]) -> dict[str, FlagsTotal]:
    """Sum programs by language: each under its best row of stock clang and under its best row of all."""
    totals = {}
    for language in ("all", *sorted({program.language for program in programs})):
        chosen = [
            (program.best_stock.sizes, program.best.sizes)
            for program in programs
            if language in ("all", program.language)
            and program.best_stock is not None
            and program.best_stock.sizes is not None
            and program.best.sizes is not None
        ]
        if not chosen:
            continue
        stock = sum((stock for stock, _ in chosen), RowSizes())
        best = sum((best for _, best in chosen), RowSizes())
        reductions = [reduction_percent(stock.stripped, best.stripped) for stock, best in chosen]
        totals[language] = FlagsTotal(
            programs=len(chosen),
            best_stock=stock,
            best=best,
            reduction_percent=reduction_percent(stock.stripped, best.stripped),
            text_reduction_percent=reduction_percent(stock.text, best.text),
            median_reduction_percent=statistics.median(part for part in reductions if part is not None),
        )
    return totals


def why_not_delivered(
    compared: FlagsComparison, compiler: CompilerOfRow, against: CompilerOfRow = "stock"
) -> str | None:
    """Return why what `compiler` builds is not worth delivering; None if the linked programs are smaller in sum than by
    `against`, each of them in its best row by either.

    Programs that `against` builds under no row do not count.
    """
    pairs: list[tuple[str, RowResult, RowResult]] = []
    for program in compared.programs:
        name = f"{program.project}/{program.name}"
        own = [result for result in program.results if result.compiler == compiler]
        other = smallest_by(program.results, against)
        if other is None or not own:
            continue
        best = smallest(own)
        if best is None:
            return f"{name} is built by {TITLES[compiler]} under no row: {own[0].failure}"
        pairs.append((name, other, best))
    if not pairs:
        return f"no program is built both by {TITLES[against]} and by {TITLES[compiler]}"
    before = sum(_stripped(other) for _, other, _ in pairs)
    after = sum(_stripped(best) for _, _, best in pairs)
    if after < before:
        return None
    name, other, best = max(pairs, key=lambda pair: _stripped(pair[2]) - _stripped(pair[1]))
    mine, theirs = f"{after:,} bytes by {TITLES[compiler]}", f"{before:,} by {TITLES[against]}"
    if len(pairs) == 1:
        return f"linked, {name} has {mine} ({best.row}), and {theirs} ({other.row}), each under its best row"
    growth = _stripped(best) - _stripped(other)
    worst = f"; {name} grows most, by {growth:,} bytes" if growth > 0 else ""
    return f"linked, {len(pairs)} programs have {mine}, and {theirs}, each under its best row{worst}"


def _stripped(result: RowResult) -> int:
    assert result.sizes is not None
    return result.sizes.stripped


def flags_csv(compared: FlagsComparison) -> str:
    """Return the text of flags.csv: every program under every row, built by each of its compilers."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS.split())
    for program in compared.programs:
        for result in program.results:
            sizes, status = result.sizes, "built" if result.sizes else f"failed: {result.failure}"
            cells = [getattr(sizes, name, "") for name in RowSizes.__struct_fields__]
            names = (program.project, program.name, program.language, result.row, result.compiler)
            writer.writerow((*names, *cells, status))
    return text.getvalue()


def _programs(
    project: str, results: dict[tuple[str, CompilerOfRow], dict[str, MeasuredProgram | str] | str]
) -> Iterator[FlagsProgram]:
    """Yield the programs that some row builds."""
    names = {name: None for built in results.values() if isinstance(built, dict) for name in built}
    for name in names:
        entries: list[RowResult] = []
        languages: list[Language] = []
        for (row, compiler), built in results.items():
            one = built if isinstance(built, str) else built.get(name, MISSING)
            if isinstance(one, MeasuredProgram):
                languages.append(one.language)
                entries.append(RowResult(row=row, compiler=compiler, sizes=one.sizes))
            else:
                entries.append(RowResult(row=row, compiler=compiler, failure=one))
        best = smallest(entries)
        if best is None:
            say(f"{project}/{name} is left out, no row builds it: {entries[0].failure}")
            continue
        yield FlagsProgram(
            project=project,
            name=name,
            language=languages[0],
            results=entries,
            best_stock=smallest_by(entries, "stock"),
            best=best,
        )


def _best_build(
    name: str,
    programs: Sequence[FlagsProgram],
    rows: Sequence[FlagRow],
    stock_clang: Path,
    release: Toolchain,
    binutils: Mapping[str, Path],
) -> FlagsProject:
    sums: dict[tuple[str, CompilerOfRow], tuple[int, int, int]] = {}
    for program in programs:
        for result in program.results:
            missing, stripped, text = sums.get((result.row, result.compiler), (0, 0, 0))
            sizes = result.sizes or RowSizes()
            added = (missing + (result.sizes is None), stripped + sizes.stripped, text + sizes.text)
            sums[result.row, result.compiler] = added
    chosen, compiler = min(sums, key=lambda key: sums[key])
    row = next(row for row in rows if row.name == chosen)
    variant = row.variant(compiler, stock_clang, release)
    flags = shlex.join(variant.flags)
    words = {
        "CC": str(variant.clang),
        "CXX": str(cxx_driver(variant.clang)),
        "CFLAGS": flags,
        "CXXFLAGS": flags,
        "LDFLAGS": shlex.join(variant.link_flags),
    }
    if row.lto:  # tools of an older LLVM do not read the objects, GNU's need a plugin
        tools = variant.binutils(binutils)
        words |= {tool.upper(): str(tools[tool]) for tool in ("ar", "nm", "ranlib")}
    build = " ".join(f"{key}={shlex.quote(value)}" for key, value in words.items() if value)
    return FlagsProject(project=name, row=chosen, compiler=compiler, build=build, assumes=list(row.assumes))
