"""Prints the table and the verdict at the end of a run.

Imports nothing heavy at import time, so that a launcher can print the table of another process's run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.core import problems
from components.core.console import UserError
from components.core.objectives import OBJECTIVES, SIZE, Objective
from components.core.storage.input_files import MissingFile, expect_shape, read_json
from components.core.storage.uri import display_path
from components.evaluation.benchmarks import program_rows
from components.evaluation.report.formatting import LANGUAGE_TITLES, change, interval, policy_title

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

METRICS = "metrics.json"
REPORT = "report.html"
SUMMARY = "summary.md"

COLUMNS = (
    ("all held-out", ()),
    ("unseen modules of known projects", ("groups", "unseen_modules")),
    ("unseen projects", ("groups", "unseen_projects")),
)
"""Title and keys in metrics.json of each group. The two kinds of unseen code are always shown separately, too."""


Cell = tuple[int, float | None]
"""Bytes, and the reduction in percent against the heuristic."""


def objective_of(metrics: Mapping[str, Any]) -> Objective:
    """Return the objective of a metrics.json or model-card.json. KeyError if there is no such objective."""
    return OBJECTIVES[metrics.get("measure", SIZE.name)]  # the first version had only sizes


def read_metrics(path: Path) -> dict[str, Any]:
    """Read a metrics.json; `path` may be the evaluation's directory. UserError if it is not one."""
    file = path / METRICS if path.is_dir() else path
    try:
        metrics: dict[str, Any] = read_json(file, "evaluate again")
    except MissingFile:
        raise UserError(f"no {METRICS} at {file}", "make it with `mlgo evaluation`") from None
    with expect_shape(file, f"the {METRICS} of an evaluation", "evaluate again"):
        if not objective_of(metrics).figures <= metrics.keys():
            raise ValueError("figures are missing")
    return metrics


def table_rows(metrics: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return the table's rows: title, and a cell for each of COLUMNS."""
    if not objective_of(metrics).additive:
        return _factor_rows(metrics)
    rows = _size_rows(metrics) + part_rows(metrics)
    return [(title, [_cell(*cell) for cell in cells]) for title, cells in rows]


def value_rows(metrics: dict[str, Any]) -> Sequence[tuple[str, Sequence[Any]]]:
    """Return the rows of the variants: title, and for each of COLUMNS a `Cell`, or text if values are not additive."""
    if objective_of(metrics).additive:
        return _size_rows(metrics)
    return _factor_rows(metrics)


def part_rows(metrics: dict[str, Any]) -> list[tuple[str, list[Cell]]]:
    """Return the policy's values by language and by section; [] if they are unknown."""
    return [
        (f"policy, {LANGUAGE_TITLES.get(name, name)}", [_pair(group[parts][name]) for group in groups(metrics)])
        for parts in ("languages", "sections")
        for name in metrics.get(parts, {})
    ]


def _size_rows(metrics: dict[str, Any]) -> list[tuple[str, list[Cell]]]:
    columns, level = groups(metrics), problems.get(metrics.get("problem", "inlining")).optimization
    rows: list[tuple[str, list[Cell]]] = [(f"stock {level}", [(group["baseline_bytes"], None) for group in columns])]
    best = metrics.get("best_threshold")
    if best is not None:
        cells = [_pair(group["sweep"][str(best)]) for group in columns]
        rows.append((f"{level}, best -inline-threshold ({best})", cells))
    if metrics.get("warmstart"):
        rows.append(("warmstart policy", [_pair(group["warmstart"]) for group in columns]))
    rows.append((policy_title(metrics), [_pair(group) for group in columns]))
    return rows


def _factor_rows(metrics: dict[str, Any]) -> list[tuple[str, list[str]]]:
    labels = objective_of(metrics).labels
    less, _equal, more = labels.directions

    def row(title: str, comparisons: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]]:
        return title, [change(comparison["reduction_percent"], (less, more)) for comparison in comparisons]

    columns = groups(metrics)
    rows = [row("warmstart policy", [group["warmstart"] for group in columns])] if metrics.get("warmstart") else []
    rows.append(row(policy_title(metrics), columns))
    rows.append(("95% interval, policy", [interval(group["reduction_percent_ci95"]) for group in columns]))
    counts = [[group[f"{labels.cases}_{direction}"] for direction in labels.directions] for group in columns]
    rows.append(
        (f"{labels.cases} {' / '.join(labels.directions)}", [" / ".join(f"{n:,}" for n in triple) for triple in counts])
    )
    return rows


def _pair(comparison: Mapping[str, Any]) -> Cell:
    return comparison["policy_bytes"], comparison["reduction_percent"]


def _cell(size_bytes: int, reduction_percent: float | None) -> str:
    if reduction_percent is None:
        return f"{size_bytes:,}" if size_bytes else "–"
    return f"{size_bytes:,}  {change(reduction_percent)}"


def groups(metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the comparison of each of COLUMNS."""
    return [_at(metrics, keys) for _, keys in COLUMNS]


def table(metrics: dict[str, Any]) -> Table:
    """Return the table for a terminal; `metrics` as read_metrics() returns it."""
    from rich.table import Table

    view = Table(title=objective_of(metrics).labels.title)
    view.add_column("")
    for title in _titles(metrics):
        view.add_column(title, justify="right")
    for title, row in table_rows(metrics):
        view.add_row(title, *row)
    return view


def verdict(metrics: dict[str, Any]) -> str:
    """Return the verdict with its reason, if it has one."""
    return program_rows.verdict(metrics, metrics.get("programs"))


def describe_reduction(metrics: Mapping[str, Any]) -> str:
    """Return the reduction as text: first that of linked files, if it decides the verdict, then that of modules."""
    modules = change(metrics["reduction_percent"], objective_of(metrics).labels.comparative)
    total = program_rows.headline_total(metrics["linked"]) if metrics.get("judged_by") == "linked" else None
    if total is None:
        return modules
    return f"linked programs and libraries {change(total['reduction_percent'])}, modules {modules}"


def footer_lines(metrics: dict[str, Any], directory: Path) -> list[str]:
    """Return the lines below the table: the verdict, the modules left out, and the paths of the files.

    Args:
        metrics: as read_metrics() returns it.
        directory: directory of the evaluation.
    """
    bounds = metrics.get("reduction_percent_ci95")
    interval_text = f", 95% interval {bounds[0]:+.2f}% to {bounds[1]:+.2f}%" if bounds else ""
    text = [
        f"verdict: {verdict(metrics)} ({describe_reduction(metrics)}{interval_text}; "
        f"required: at least {metrics['min_reduction_percent']:g}%)"
    ]
    if (programs := metrics.get("programs")) is not None:
        text.append(program_rows.summary(programs))
    text += linked_lines(metrics.get("linked", {}))
    if metrics.get("excluded"):
        text.append(f"left out: {len(metrics['excluded'])} modules that did not compile, listed in {REPORT}")
    inputs = metrics.get("inputs", {})
    for title, key in (("release clang", "release_clang"), ("policy", "policy")):
        if inputs.get(key):
            text.append(f"{title}: {inputs[key]}")
    text.append(f"report: {display_path(directory / REPORT)}")
    return text


def markdown(metrics: dict[str, Any]) -> str:
    """Return the table and the verdict as Markdown."""
    text = _markdown_table(["", *_titles(metrics)], [[title, *row] for title, row in table_rows(metrics)])
    text += ["", f"Verdict: {verdict(metrics)} ({describe_reduction(metrics)})", ""]
    if (programs := metrics.get("programs")) is not None:
        program_table = _markdown_table(program_rows.columns(programs), program_rows.rows(programs))
        text += [f"{program_rows.summary(programs)}:", "", *program_table, ""]
    return "\n".join(text)


def _markdown_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        "|" + "|".join(f" {title} " if title else " " for title in titles) + "|",
        "|---" * len(titles) + "|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]


def print_table(metrics: dict[str, Any], directory: Path) -> None:
    """Print the table and the lines below it."""
    console = _console()
    console.print(table(metrics))
    if (programs := metrics.get("programs")) is not None:
        console.print(_program_table(programs))
    for line in footer_lines(metrics, directory):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


SECTIONS = {
    "llvm_size_text": "text (llvm-size)",
    "text": ".text",
    "rodata": ".rodata",
    "eh_frame": ".eh_frame",
    "gcc_except_table": ".gcc_ex…",
    "dynstr": ".dynstr",
    "data": "data",
    "other": "other",
    "total": "total",
}
"""Columns of linked binaries: attribute of SectionSizes -> title."""


def print_binaries(compared: Mapping[str, Any], subject: str) -> None:
    """Print the linked binaries of metrics.json by section (new bytes and change), and their sums.

    `subject` names the bytes and the baseline in the title.
    """
    from rich.table import Table

    console = _console()
    for variant in dict.fromkeys(binary["link_variant"] for binary in compared["binaries"]):
        view = Table("binary", title=f"Linked binaries, {variant}: {subject}")
        for section in SECTIONS.values():
            view.add_column(section, justify="right")
        for binary in compared["binaries"]:
            if binary["link_variant"] == variant:
                pairs = [(binary["stock"][section], binary["policy"][section]) for section in SECTIONS]
                cells = [f"{policy:,}\n{policy - stock:+,}" for stock, policy in pairs]
                view.add_row(f"{binary['project']}/{binary['name']}\n{binary['kind']}", *cells)
        console.print(view)
    for line in linked_lines(compared["linked"]):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def linked_lines(linked: Mapping[str, Any]) -> list[str]:
    """Return a line for each link variant and language: the reduction of its programs and shared libraries in sum."""
    titles = {"all": "all", "c": "C", "c++": "C++"}
    return [
        f"linked, {variant}, {titles[language]} ({total['files']}): {change(total['reduction_percent'])}, "
        f".text alone {change(total['text_reduction_percent'])}"
        for variant, languages in linked.items()
        for language, total in sorted(languages.items())
    ]


def print_programs(programs: Mapping[str, Any]) -> None:
    """Print the executed instructions of each run and in sum; `programs` is a result of `summarize_programs`."""
    console = _console()
    console.print(_program_table(programs))
    console.print(program_rows.summary(programs), highlight=False, soft_wrap=True)


def _console() -> Console:
    from rich.console import Console

    # Without a terminal rich assumes 80 columns and wraps every cell.
    return Console() if Console().is_terminal else Console(width=140)


def _titles(metrics: dict[str, Any]) -> list[str]:
    cases = objective_of(metrics).labels.cases
    return [f"{title} ({group[cases]:,})" for (title, _), group in zip(COLUMNS, groups(metrics), strict=True)]


def _at(metrics: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    for key in keys:
        metrics = metrics[key]
    return metrics


def _program_table(programs: Mapping[str, Any]) -> Table:
    from rich.table import Table

    view = Table(title="Executed instructions of programs built with stock clang and with the release clang")
    for index, title in enumerate(program_rows.columns(programs)):
        view.add_column(title, justify="right" if index else "left")
    for row in program_rows.rows(programs):
        view.add_row(*row)
    return view
