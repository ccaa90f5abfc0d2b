"""Formats figures for all reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter

from components.platform.console.escape import markdown_text
from components.platform.launcher import step_cost
from components.platform.launcher.step_cost import StepCost

SMALLER = ("smaller", "larger")
_ROUNDING_PERCENT = 5e-9
"""Less is the rounding of floating point numbers: a byte of a gigabyte is more."""
LANGUAGE_TITLES = {"c": "C modules", "c++": "C++ modules", "other": "modules of other languages"}
PROJECTS = "by project: "
"""Beginning of the line of an evaluation's log that says which projects grew and which gained."""
_NAMED_PROJECTS = 3
GROUP_TITLES = {"unseen_modules": "unseen modules of known projects", "unseen_projects": "unseen projects"}


def change(reduction_percent: float | None, comparative: Sequence[str] = SMALLER, limit: float = 0.0) -> str:
    """Format `reduction_percent` without a sign: "2.31% smaller", "0.40% larger", "same", or a dash.

    limit: one in percent that the figure is compared with, see `beside`."""
    if reduction_percent is None:
        return "–"
    if abs(reduction_percent) < _ROUNDING_PERCENT:
        return "same"
    return (
        f"{beside(abs(reduction_percent), abs(limit))}% {comparative[0] if reduction_percent > 0 else comparative[1]}"
    )


def projects_line(reductions: Mapping[str, float | None]) -> str:
    """Return which projects grew and which gained, the largest changes first: "by project: grew lz4 0.10%; gained ...".

    Args:
        reductions: project -> reduction in percent.
    """
    known = sorted(((value, name) for name, value in reductions.items() if value is not None), key=itemgetter(0))
    grew = [f"{name} {-value:.2f}%" for value, name in known if value < -_ROUNDING_PERCENT]
    gained = [f"{name} {value:.2f}%" for value, name in reversed(known) if value > _ROUNDING_PERCENT]
    parts = [f"{word} {_named(names)}" for word, names in (("grew", grew), ("gained", gained)) if names]
    return PROJECTS + ("; ".join(parts) or "no change")


def _named(names: Sequence[str]) -> str:
    more = len(names) - _NAMED_PROJECTS
    return ", ".join(names[:_NAMED_PROJECTS]) + (f" and {more} more" if more > 0 else "")


def beside(percent: float, limit: float) -> str:
    """Format a percentage with two digits, or as many as tell it from a limit: "1.004" of a limit of 1."""
    texts = (f"{percent:.{digits}f}" for digits in range(2, 9))
    return next((text for text in texts if float(text) != limit or percent == limit), f"{percent:.8f}")


def required_in_words(percent: float, comparative: Sequence[str] = SMALLER) -> str:
    """Format a required reduction: "at least 0.5% smaller", or "at most 1% larger" if a growth is accepted."""
    return f"at least {percent:g}% {comparative[0]}" if percent >= 0 else f"at most {-percent:g}% {comparative[1]}"


def interval(bounds: Sequence[float] | None) -> str:
    """Format a 95% interval in percent; a dash for None."""
    return f"{bounds[0]:+.2f}% … {bounds[1]:+.2f}%" if bounds else "–"


def interval_in_words(bounds: Sequence[float] | None, comparative: Sequence[str] = SMALLER) -> str:
    """Format a 95% interval of reductions as `change` does, ", 95% interval 0.10% to 2.30% smaller"; "" for None."""
    if not bounds:
        return ""
    if bounds[0] == bounds[1] == 0:
        return ", 95% interval 0.00% to 0.00%"
    if bounds[0] * bounds[1] <= 0:
        return f", 95% interval {change(bounds[0], comparative)} to {change(bounds[1], comparative)}"
    least, most = sorted(bounds, key=abs)
    return f", 95% interval {beside(abs(least), 0.0)}% to {change(most, comparative)}"


def costs_markdown(costs: Mapping[str, StepCost]) -> str:
    """Return a table of what steps cost, by task, as Markdown; "" without any."""
    if not costs:
        return ""
    table = markdown_table(step_cost.COLUMNS, step_cost.table_rows(costs))
    return "\n".join(["", f"What the run cost. {step_cost.NOTE}", "", *table, ""])


def markdown_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table in Markdown. Nothing in its cells is markup."""
    escaped = [[_cell(cell) for cell in row] for row in rows]
    return [
        "|" + "|".join(f" {markdown_text(title)} " if title else " " for title in titles) + "|",
        "|---" * len(titles) + "|",
        *(f"| {' | '.join(row)} |" for row in escaped),
    ]


def _cell(text: str) -> str:
    # A list cannot begin in a cell, so a sign needs no escaping.
    return text[:1] + markdown_text(text[1:]) if text[:1] in ("+", "-") else markdown_text(text)
