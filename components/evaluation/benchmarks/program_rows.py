"""Formats `metrics["programs"]` and `metrics["linked"]` as rows and text for all reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from components.evaluation.report.formatting import change

COMPARATIVE = ("fewer instructions", "more instructions")


def headline_total(linked: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the sum over all programs and shared libraries of the main link variant; None if none were linked."""
    variant = linked.get("default") or next(iter(linked.values()), None)
    return variant["all"] if variant else None


def verdict(figures: Mapping[str, Any], programs: Mapping[str, Any] | None) -> str:
    """Return the verdict of `figures` (metrics.json, or a model card's gate) with its reason: `refused_because`, or the
    executed instructions if these alone decided it."""
    text = str(figures["verdict"])
    if figures.get("refused_because"):
        return f"{text}, because {figures['refused_because']}"
    if figures["verdict"] == "better" or programs is None or not execute_more(programs):
        return text
    reduction = figures["reduction_percent"]
    enough = reduction is not None and reduction >= figures["min_reduction_percent"]
    return f"{text}, because programs execute more instructions" if enough else text


def execute_more(programs: Mapping[str, Any]) -> bool:
    """Return whether all programs together execute more instructions under the policy."""
    counts = programs["instructions"]
    return bool(counts["policy"] > counts["stock"])


def summary(programs: Mapping[str, Any]) -> str:
    """Return the instructions of all programs together as text."""
    counts, count = programs["instructions"], len(programs["programs"])
    total = change(programs["reduction_percent"], COMPARATIVE)
    mean = change(programs["geometric_mean_reduction_percent"], ("fewer", "more"))
    return (
        f"{count} run{'s' if count > 1 else ''} of programs of whole projects: {total} "
        f"({counts['stock']:,} → {counts['policy']:,} in sum; geometric mean {mean}), counted by {programs['counter']}"
    )


def template_values(programs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the variables of programs.html.jinja."""
    return {
        "programs_summary": summary(programs) if programs else None,
        "programs_columns": columns(programs) if programs else None,
        "programs_rows": rows(programs) if programs else None,
    }


def columns(programs: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the titles of `rows`; with cycles if the machine counts them."""
    cycles = ("cycles",) if _cycles(programs) else ()
    return ("program", "instructions, stock", "instructions, policy", "change", *cycles, "machine code")


def rows(programs: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row for each program, with a cell for each of `columns`."""
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
    return any(entry[build]["cycles"] for entry in programs["programs"] for build in ("stock", "policy"))


def _change(stock: int | None, policy: int | None) -> str:
    return f"{100.0 * (policy / stock - 1.0):+.2f}%" if stock and policy else "–"
