"""What `metrics["programs"]` and `metrics["linked"]` say, as rows and words for every place that shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from components.evaluation.report.formatting import change

COMPARATIVE = ("fewer instructions", "more instructions")


def headline(linked: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the sum over all programs and shared libraries that a report speaks of first; None if none were linked."""
    variant = linked.get("default") or next(iter(linked.values()), None)
    return variant["all"] if variant else None


def verdict(figures: Mapping[str, Any], programs: Mapping[str, Any] | None) -> str:
    """The verdict, with its reason where `figures` (of metrics.json, or of a card's gate) have one, and that it is the
    programs' where these alone would have had another."""
    told = str(figures["verdict"])
    if figures.get("refused_because"):
        return f"{told}, for {figures['refused_because']}"
    if figures["verdict"] == "better" or programs is None or not execute_more(programs):
        return told
    reduction = figures["reduction_percent"]
    enough = reduction is not None and reduction >= figures["min_reduction_percent"]
    return f"{told}, for programs execute more instructions" if enough else told


def execute_more(programs: Mapping[str, Any]) -> bool:
    """Whether all programs together execute more instructions under the policy."""
    counts = programs["instructions"]
    return bool(counts["policy"] > counts["stock"])


def summary(programs: Mapping[str, Any]) -> str:
    """What all programs together execute."""
    counts, count = programs["instructions"], len(programs["programs"])
    told = change(programs["reduction_percent"], COMPARATIVE)
    mean = change(programs["geometric_mean_reduction_percent"], ("fewer", "more"))
    return (
        f"{count} run{'s' if count > 1 else ''} of programs, built whole: {told} "
        f"({counts['stock']:,} → {counts['policy']:,} in sum; geometric mean {mean}), counted by {programs['counter']}"
    )


def page_values(programs: Mapping[str, Any] | None) -> dict[str, Any]:
    """What programs.html.jinja wants to know."""
    return {
        "programs_told": summary(programs) if programs else None,
        "programs_columns": columns(programs) if programs else None,
        "programs_rows": rows(programs) if programs else None,
    }


def columns(programs: Mapping[str, Any]) -> tuple[str, ...]:
    """Titles of `rows`; there are cycles where the machine counts them."""
    cycles = ("cycles",) if _cycles(programs) else ()
    return ("program", "instructions, stock", "instructions, policy", "change", *cycles, "machine code")


def rows(programs: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A row a program, for each of `columns`."""
    figures = ("cycles", "text_bytes") if _cycles(programs) else ("text_bytes",)
    return [
        (
            f"{entry['project']}/{entry['name']}",
            f"{entry['stock']['instructions']:,}",
            f"{entry['policy']['instructions']:,}",
            f"{entry['change_percent']:+.2f}%",
            *(_change(entry["stock"][figure], entry["policy"][figure]) for figure in figures),
        )
        for entry in programs["programs"]
    ]


def _cycles(programs: Mapping[str, Any]) -> bool:
    return any(entry[side]["cycles"] for entry in programs["programs"] for side in ("stock", "policy"))


def _change(stock: int | None, policy: int | None) -> str:
    return f"{100.0 * (policy / stock - 1.0):+.2f}%" if stock and policy else "–"
