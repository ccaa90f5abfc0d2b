"""The few lines that a run ends with: text size of the held-out modules under each variant.

Imports nothing heavy at import time, so that a launcher can show the table of a run that another process made.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.console import UserError
from components.storage.uri import shown

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
"""Title and place in metrics.json of each group: results for the two kinds of unseen code are never added unsaid."""


def read_metrics(path: Path) -> dict[str, Any]:
    """Reads a metrics.json; `path` may be the evaluation's directory. UserError if it is not one."""
    file = path / METRICS if path.is_dir() else path
    try:
        metrics = json.loads(file.read_text(encoding="utf-8"))
        if not {"modules", "baseline_bytes", "policy_bytes", "groups"} <= metrics.keys():
            raise ValueError("figures are missing")
    except FileNotFoundError:
        raise UserError(f"no {METRICS} at {file}", "make it with `python -m components.evaluation`") from None
    except (ValueError, AttributeError) as error:
        raise UserError(f"{file} is not the {METRICS} of an evaluation ({error})", "evaluate again") from None
    return metrics


def change(reduction_percent: float | None) -> str:
    """`reduction_percent` in words that cannot be misread: "2.31% smaller", "0.40% larger", "same", or a dash."""
    if reduction_percent is None:
        return "–"
    if reduction_percent == 0:
        return "same"
    return f"{abs(reduction_percent):.2f}% {'smaller' if reduction_percent > 0 else 'larger'}"


def policy_title(metrics: dict[str, Any]) -> str:
    """Names the policy and which clang compiled it: a figure of the training clang must not pass for the release's."""
    by = metrics.get("policy_compiled_by", "release")
    return f"policy, compiled by the {by} clang"


def rows(metrics: dict[str, Any]) -> list[tuple[str, list[tuple[int, float | None]]]]:
    """The table as data: title, then (bytes, reduction in percent against -Oz) for each of COLUMNS."""
    groups = [_at(metrics, place) for _, place in COLUMNS]
    table: list[tuple[str, list[tuple[int, float | None]]]] = [
        ("stock -Oz", [(group["baseline_bytes"], None) for group in groups])
    ]
    best = metrics.get("best_threshold")
    if best is not None:
        table.append((f"-Oz, best -inline-threshold ({best})", [_pair(group["sweep"][str(best)]) for group in groups]))
    if metrics.get("warmstart"):
        table.append(("warmstart policy", [_pair(group["warmstart"]) for group in groups]))
    table.append((policy_title(metrics), [_pair(group) for group in groups]))
    return table


def table(metrics: dict[str, Any]) -> Table:
    """The table for a terminal; `metrics` as read_metrics() gives it."""
    from rich.table import Table

    view = Table(title="Text size of the held-out modules")
    view.add_column("")
    for title, place in COLUMNS:
        view.add_column(f"{title} ({_at(metrics, place)['modules']})", justify="right")
    for title, cells in rows(metrics):
        view.add_row(title, *(_cell(*cell) for cell in cells))
    return view


def lines(metrics: dict[str, Any], directory: Path) -> list[str]:
    """What stands under the table: the verdict, what was left out, and where everything lies.

    Args:
        metrics: as read_metrics() gives it.
        directory: where the evaluation's files are.
    """
    interval = metrics.get("reduction_percent_ci95")
    sure = f", 95% interval {interval[0]:+.2f}% to {interval[1]:+.2f}%" if interval else ""
    text = [
        f"verdict: {metrics['verdict']} ({change(metrics['reduction_percent'])}{sure}; "
        f"asked for at least {metrics['min_reduction_percent']:g}%)"
    ]
    if metrics.get("excluded"):
        text.append(f"left out: {len(metrics['excluded'])} modules that did not compile, named in {REPORT}")
    inputs = metrics.get("inputs", {})
    for title, key in (("release clang", "release_clang"), ("policy", "policy")):
        if inputs.get(key):
            text.append(f"{title}: {inputs[key]}")
    text.append(f"report: {shown(directory / REPORT)}")
    return text


def markdown(metrics: dict[str, Any]) -> str:
    """The table and the verdict for a page of Markdown."""
    titles = [f"{title} ({_at(metrics, place)['modules']})" for title, place in COLUMNS]
    text = [f"| | {' | '.join(titles)} |", "|---" * (len(titles) + 1) + "|"]
    text += [f"| {title} | {' | '.join(_cell(*cell) for cell in cells)} |" for title, cells in rows(metrics)]
    return "\n".join([*text, "", f"Verdict: {metrics['verdict']} ({change(metrics['reduction_percent'])})", ""])


def print_table(metrics: dict[str, Any], directory: Path) -> None:
    """Prints table and lines to standard output."""
    console = _console()
    console.print(table(metrics))
    for line in lines(metrics, directory):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


SECTIONS = ("text", "rodata", "eh_frame", "data", "other", "total", "llvm_size_text")


def print_binaries(binaries: list[dict[str, Any]]) -> None:
    """Prints linked binaries by section (bytes under the policy, and the change), as metrics.json has them."""
    from rich.table import Table

    view = Table(title="Linked binaries: bytes with the policy, change against stock -Oz")
    view.add_column("binary")
    for section in SECTIONS:
        view.add_column(section.replace("llvm_size_text", "text (llvm-size)"), justify="right")
    for binary in binaries:
        pairs = [(binary["stock"][section], binary["policy"][section]) for section in SECTIONS]
        cells = [f"{policy:,}\n{policy - stock:+,}" for stock, policy in pairs]
        view.add_row(f"{binary['project']}/{binary['name']}\n{binary['kind']}", *cells)
    _console().print(view)


def _console() -> Console:
    from rich.console import Console

    # Not a terminal: rich would guess 80 columns and fold every cell.
    return Console() if Console().is_terminal else Console(width=140)


def _at(metrics: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    for key in place:
        metrics = metrics[key]
    return metrics


def _pair(comparison: dict[str, Any]) -> tuple[int, float | None]:
    return comparison["policy_bytes"], comparison["reduction_percent"]


def _cell(size_bytes: int, reduction_percent: float | None) -> str:
    if reduction_percent is None:
        return f"{size_bytes:,}" if size_bytes else "–"
    return f"{size_bytes:,}  {change(reduction_percent)}"
