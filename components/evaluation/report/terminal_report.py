"""Prints the table and the verdict at the end of a run.

Imports nothing heavy at import time, so that a launcher can print the table of another process's run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from components.core import problems
from components.core.compiler.objects.function_names import shorten
from components.core.objectives import OBJECTIVES, Objective
from components.core.objectives.estimate import MODULES, PROJECTS
from components.core.projects.flags.types import FlagsComparison
from components.evaluation.benchmarks import program_rows
from components.evaluation.metrics_types import (
    BenchmarkSummary,
    BinariesComparison,
    BinaryEntry,
    FunctionChange,
    Metrics,
    ScoreGroup,
    ScoreMetrics,
    SectionComparison,
    SizeComparison,
    SizeGroup,
    SizeMetrics,
    decode_metrics,
)
from components.evaluation.report import flags_tables, linked_tables
from components.evaluation.report.changed_functions import by_direction, decision_lines, shorten_path
from components.evaluation.report.formatting import LANGUAGE_TITLES, change, interval, markdown_table, required_in_words
from components.evaluation.report.policy_choice import (
    caveats,
    comparison_notes,
    estimate_lines,
    policy_row,
    reference_row,
    release_notes,
    start_row,
    verdict_subject,
)
from components.platform.console.escape import markdown_text
from components.platform.console.tables import make_table, print_lines, table_console
from components.platform.errors import UserError
from components.platform.storage.input_files import MissingFile, read_bytes
from components.platform.storage.uri import display_path

if TYPE_CHECKING:
    from rich.table import Table

METRICS = "metrics.json"
REPORT = "report.html"
SUMMARY = "summary.md"
_WIDTH = 140
_MAX_PROGRAMS = 4
"""More programs have too many rows of flags for a terminal; flags.csv has all."""
_MAX_NAME = 78
"""Characters of a function's name; binaries.json and metrics.json have all."""
_MAX_FUNCTIONS = 3
"""Functions of each direction in the table of an evaluation; report.html has more."""

COLUMNS = ("all held-out", "unseen modules of known projects", "unseen projects")
"""Titles of `Metrics.columns`. The two kinds of unseen code are shown separately, too, if there are both."""


Cell = tuple[int, float | None]
"""Bytes, and the reduction in percent against the heuristic."""


def objective_of(metrics: Metrics) -> Objective:
    """Return the objective of a metrics.json."""
    return OBJECTIVES[metrics.measure]


def read_metrics(path: Path) -> Metrics:
    """Read a metrics.json; `path` may be the evaluation's directory. UserError if it is not one."""
    file = path / METRICS if path.is_dir() else path
    try:
        return decode_metrics(read_bytes(file, "evaluate again"))
    except MissingFile:
        raise UserError(f"no {METRICS} at {file}", "make it with `mlgo evaluation`") from None
    except msgspec.ValidationError as error:
        raise UserError(f"{file} is not the {METRICS} of an evaluation ({error})", "evaluate again") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file} is not valid JSON: {error}", "evaluate again") from None


def shown_columns(metrics: Metrics) -> list[tuple[str, SizeGroup | ScoreGroup]]:
    """Return the columns of the tables, title and figures: the groups only if there are modules of both, because one
    group alone has the figures of all modules."""
    titled: list[tuple[str, SizeGroup | ScoreGroup]] = list(zip(COLUMNS, metrics.columns, strict=True))
    return titled if all(group.modules for _, group in titled) else titled[:1]


def _size_columns(metrics: SizeMetrics) -> list[SizeGroup]:
    return [group for _, group in shown_columns(metrics) if isinstance(group, SizeGroup)]


def table_rows(metrics: Metrics) -> list[tuple[str, list[str]]]:
    """Return the table's rows: title, and a cell for each of `shown_columns`."""
    if isinstance(metrics, ScoreMetrics):
        return _factor_rows(metrics)
    rows = _size_rows(metrics) + part_rows(metrics)
    return [(title, [_cell(*cell) for cell in cells]) for title, cells in rows]


def value_rows(metrics: Metrics) -> Sequence[tuple[str, Sequence[Cell | str]]]:
    """Return the rows of the variants: title, and for each of `shown_columns` a `Cell`, or text if values do not
    add up."""
    if isinstance(metrics, ScoreMetrics):
        return _factor_rows(metrics)
    return _size_rows(metrics)


def part_rows(metrics: SizeMetrics) -> list[tuple[str, list[Cell]]]:
    """Return the policy's values by language and by section; [] if they are unknown."""
    columns = _size_columns(metrics)
    languages = [
        (f"policy, {LANGUAGE_TITLES.get(name, name)}", [_pair(group.languages[name]) for group in columns])
        for name in metrics.languages
    ]
    sections = [(f"policy, {name}", [_pair(group.sections[name]) for group in columns]) for name in metrics.sections]
    return languages + sections + _function_rows(columns)


def _function_rows(columns: Sequence[SizeGroup]) -> list[tuple[str, list[Cell]]]:
    """Return the rows of functions that training did not compile, and of functions that count once, if known."""
    new = [group.overlap.new_functions for group in columns if group.overlap is not None]
    once = [group.functions_once for group in columns if group.functions_once is not None]
    rows = [
        ("policy, functions that training did not compile", list(map(_pair, new))),
        ("policy, each function once in its project", list(map(_pair, once))),
    ]
    return [row for row in rows if len(row[1]) == len(columns)]


def _size_rows(metrics: SizeMetrics) -> list[tuple[str, list[Cell]]]:
    columns, level = _size_columns(metrics), problems.get(metrics.problem).optimization
    rows: list[tuple[str, list[Cell]]] = [(f"stock {level}", [(group.baseline_bytes, None) for group in columns])]
    best = metrics.best_threshold
    if best is not None:
        cells = [_pair(group.sweep[str(best)]) for group in columns]
        rows.append((f"{level}, best -inline-threshold ({best})", cells))
    if metrics.warmstart:
        rows.append((start_row(metrics), [_pair(group.warmstart) for group in columns if group.warmstart]))
    if metrics.reference:
        rows.append((reference_row(metrics), [_pair(group.reference) for group in columns if group.reference]))
    rows.append((policy_row(metrics), [_pair(group) for group in columns]))
    return rows


def _factor_rows(metrics: ScoreMetrics) -> list[tuple[str, list[str]]]:
    labels = objective_of(metrics).labels
    less, _equal, more = labels.directions
    columns = [group for _, group in shown_columns(metrics) if isinstance(group, ScoreGroup)]

    def row(title: str, reductions: Sequence[float | None]) -> tuple[str, list[str]]:
        return title, [change(reduction, (less, more)) for reduction in reductions]

    rows = []
    if metrics.warmstart:
        starts = [group.warmstart.reduction_percent for group in columns if group.warmstart]
        rows.append(row(start_row(metrics), starts))
    if metrics.reference:
        others = [group.reference.reduction_percent for group in columns if group.reference]
        rows.append(row(reference_row(metrics), others))
    rows.append(row(policy_row(metrics), [group.reduction_percent for group in columns]))
    rows += interval_rows(columns)
    counts = [
        f"{group.functions_lower:,} / {group.functions_equal:,} / {group.functions_higher:,}" for group in columns
    ]
    rows.append((f"{labels.cases} {' / '.join(labels.directions)}", counts))
    return rows


def interval_rows(columns: Sequence[SizeGroup | ScoreGroup]) -> list[tuple[str, list[str]]]:
    """Return the rows of the policy's 95% intervals, a row for each target, with a cell for each of the columns."""
    rows = []
    for target, estimates in (
        (MODULES, [group.other_modules for group in columns]),
        (PROJECTS, [group.other_projects for group in columns]),
    ):
        if any(estimates):
            cells = [interval(estimate.interval95 if estimate else None) for estimate in estimates]
            rows.append((f"95% interval of the estimate for {target}", cells))
    return rows


def _pair(comparison: SizeComparison | SectionComparison) -> Cell:
    return comparison.policy_bytes, comparison.reduction_percent


def _cell(size_bytes: int, reduction_percent: float | None) -> str:
    if reduction_percent is None:
        return f"{size_bytes:,}" if size_bytes else "–"
    return f"{size_bytes:,}  {change(reduction_percent)}"


def table(metrics: Metrics) -> Table:
    """Return the table for a terminal; `metrics` as read_metrics() returns it."""
    rows = [[title, *row] for title, row in table_rows(metrics)]
    return make_table(objective_of(metrics).labels.title, ["", *_titles(metrics)], rows)


def verdict(metrics: Metrics) -> str:
    """Return the verdict with its reason, if it has one."""
    return program_rows.verdict(metrics, metrics.programs)


def describe_reduction(metrics: Metrics) -> str:
    """Return the reduction as text: first that of linked files, if there are any, then that of modules, with their
    number."""
    modules = change(metrics.reduction_percent, objective_of(metrics).labels.comparative)
    count = f"{metrics.modules} held-out module{'' if metrics.modules == 1 else 's'}"
    total = program_rows.headline_total(metrics.linked) if isinstance(metrics, SizeMetrics) else None
    if total is None:
        return f"{modules} on {count}"
    return f"text of linked programs and libraries {change(total.reduction_percent)}, {count} {modules}"


def footer_lines(metrics: Metrics, directory: Path) -> list[str]:
    """Return the lines below the table: the verdict, the modules left out, and the paths of the files."""
    text = [
        f"verdict{verdict_subject(metrics)}: {verdict(metrics)} (measured: {describe_reduction(metrics)}; "
        f"required: {required_in_words(metrics.min_reduction_percent, objective_of(metrics).labels.comparative)})"
    ]
    text += estimate_lines(metrics)
    text += caveats(metrics)
    if (programs := metrics.programs) is not None:
        text.append(program_rows.summary(programs))
    text += linked_lines(metrics)
    text += comparison_notes(metrics)
    text += release_notes(metrics)
    if metrics.excluded:
        text.append(f"left out: {len(metrics.excluded)} modules that did not compile, listed in {REPORT}")
    for title, path in (("release clang", metrics.inputs.release_clang), ("policy", metrics.inputs.policy)):
        if path:
            text.append(f"{title}: {path}")
    text.append(f"report: {display_path(directory / REPORT)}")
    return text


def markdown(metrics: Metrics) -> str:
    """Return the verdict and the tables as Markdown, linked files first."""
    text = [
        f"Verdict{verdict_subject(metrics)}: {markdown_text(verdict(metrics))} "
        f"(measured: {describe_reduction(metrics)})",
        "",
        *(f"- {markdown_text(line)}" for line in estimate_lines(metrics)),
        "",
    ]
    if embedded := release_notes(metrics):
        text += [*(f"**{markdown_text(note[0].upper() + note[1:])}.**" for note in embedded), ""]
    if binaries := linked_tables.select_linked(metrics.binaries):
        text += markdown_table(*_linked_rows(metrics, binaries))
    if lines := linked_lines(metrics):
        text += ["", *(f"- {markdown_text(line)}" for line in lines), ""]
    text += markdown_table(["", *_titles(metrics)], [[title, *row] for title, row in table_rows(metrics)])
    if isinstance(metrics, SizeMetrics) and metrics.flags is not UNSET:
        rows = flags_tables.program_rows(metrics.flags)
        text += ["", *markdown_table(flags_tables.PROGRAM_COLUMNS, rows), ""]
        text += [f"- {markdown_text(line)}" for line in flags_tables.total_lines(metrics.flags)]
    if notes := [*caveats(metrics), *comparison_notes(metrics)]:
        text += ["", *(f"- {markdown_text(note)}" for note in notes)]
    text.append("")
    if (programs := metrics.programs) is not None:
        program_table = markdown_table(program_rows.columns(programs), program_rows.rows(programs))
        text += [f"{markdown_text(program_rows.summary(programs))}:", "", *program_table, ""]
    return "\n".join(text)


def print_table(metrics: Metrics, directory: Path) -> None:
    console = table_console(_WIDTH)
    if binaries := linked_tables.select_linked(metrics.binaries):
        console.print(_linked_table(metrics, binaries))
    console.print(table(metrics))
    if isinstance(metrics, SizeMetrics) and metrics.flags is not UNSET:
        print_flags(metrics.flags)
    if (programs := metrics.programs) is not None:
        console.print(_program_table(programs))
    if isinstance(metrics, SizeMetrics):
        print_functions(metrics.module_functions, "Functions of held-out modules", _MAX_FUNCTIONS)
        print_functions(metrics.binary_functions, "Functions of linked binaries", _MAX_FUNCTIONS)
    print_lines(console, footer_lines(metrics, directory))


def print_binaries(compared: BinariesComparison, subject: str) -> None:
    """Print the linked binaries of metrics.json by section (new bytes and change), and their sums. Where a plan was
    compared, each binary has a second row.

    `subject` names the bytes and the baseline in the title.
    """
    console = table_console(_WIDTH)
    for variant in dict.fromkeys(binary.link_variant for binary in compared.binaries):
        rows = []
        for binary in compared.binaries:
            for detail, sizes in linked_tables.list_variants(binary) if binary.link_variant == variant else ():
                pairs = [(getattr(binary.stock, name), getattr(sizes, name)) for name in linked_tables.SECTIONS]
                cells = [f"{new:,}\n{new - stock:+,}" for stock, new in pairs]
                rows.append([f"{binary.project}/{binary.name}\n{detail}", *cells])
        title = f"Linked binaries, {variant}: {subject}"
        console.print(make_table(title, ["binary", *linked_tables.SECTIONS.values()], rows))
    print_lines(console, linked_tables.linked_lines(compared.linked))


def print_flags(compared: FlagsComparison) -> None:
    """Print the sums of each compiler's best rows, the rows of each program, where these are few, the best rows of
    every program, and what they assume."""
    from rich.table import Table

    console = table_console(_WIDTH)
    print_lines(console, flags_tables.compiler_lines(compared))
    if len(compared.programs) <= _MAX_PROGRAMS:
        for program in compared.programs:
            title = f"{program.project}/{program.name}: bytes, change against the best row of stock clang"
            rows = flags_tables.row_rows(compared, program)
            console.print(make_table(title, flags_tables.row_columns(compared), rows, left=2))
    view = Table(title="Best row of stock clang, and best of all")
    for title in flags_tables.PROGRAM_COLUMNS:
        view.add_column(title, justify="right" if "bytes" in title or ".text" in title else "left")
    for row in flags_tables.program_rows(compared):
        view.add_row(*row)
    console.print(view)
    lines = [*flags_tables.assumption_lines(compared), *flags_tables.total_lines(compared)]
    print_lines(console, [*lines, "put into the build:", *flags_tables.build_lines(compared)])


def print_functions(changes: Sequence[FunctionChange], title: str = "Functions", limit: int | None = None) -> None:
    """Print the functions that differ most between two builds, those that grew first, and the decisions behind them.

    Args:
        limit: number of functions of each direction; None for all.
    """
    console = table_console(_WIDTH)
    for direction, chosen in by_direction(changes):
        rows = []
        for one in chosen[:limit]:
            decisions = (f"  {line}" for line in decision_lines(one, _MAX_NAME - 2))
            function = "\n".join([shorten(one.function, _MAX_NAME), *decisions])
            rows.append((function, shorten_path(one.binary), f"{one.old:,}", f"{one.new:,}", f"{one.new - one.old:+,}"))
        console.print(make_table(f"{title} {direction}", ("function", "in", "old", "new", "bytes"), rows, left=2))


def print_programs(programs: BenchmarkSummary) -> None:
    """Print the executed instructions of each run and in sum; `programs` is a result of `summarize_programs`."""
    console = table_console(_WIDTH)
    console.print(_program_table(programs))
    print_lines(console, [program_rows.summary(programs)])


def _titles(metrics: Metrics) -> list[str]:
    return [f"{title} ({group.cases:,})" for title, group in shown_columns(metrics)]


def linked_lines(metrics: Metrics) -> list[str]:
    """Return the lines about linked files: their sums, and how the user's own build was linked again."""
    if not isinstance(metrics, SizeMetrics):
        return []
    lines = linked_tables.linked_lines(metrics.linked)
    if metrics.own_build is not UNSET:
        lines += linked_tables.own_build_lines(metrics.own_build, len(linked_tables.select_linked(metrics.binaries)))
    return lines


def _is_own_build(metrics: Metrics) -> bool:
    return isinstance(metrics, SizeMetrics) and metrics.own_build is not UNSET


def _linked_rows(metrics: Metrics, binaries: Sequence[BinaryEntry]) -> tuple[list[str], list[list[str]]]:
    """Return titles and rows of linked files: by project, or each of the user's own build."""
    if _is_own_build(metrics):
        return linked_tables.OWN_COLUMNS, linked_tables.own_rows(binaries)
    return linked_tables.PROJECT_COLUMNS, linked_tables.project_rows(binaries)


def _linked_table(metrics: Metrics, binaries: Sequence[BinaryEntry]) -> Table:
    columns, rows = _linked_rows(metrics, binaries)
    if _is_own_build(metrics):
        counted = f"bytes, change against stock; the verdict is on {linked_tables.TEXT}"
        title = f"Programs and shared libraries of your build: {counted}"
        return make_table(title, columns, rows)
    title = "Linked programs and shared libraries by project: bytes with the policy, change against stock"
    return make_table(
        title, columns, [[*row[:2], *(cell.replace(" ", "\n") for cell in row[2:])] for row in rows], left=2
    )


def _program_table(programs: BenchmarkSummary) -> Table:
    title = "Executed instructions of programs built with stock clang and with the release clang"
    return make_table(title, program_rows.columns(programs), program_rows.rows(programs))
