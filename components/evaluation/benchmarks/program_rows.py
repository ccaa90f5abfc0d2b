"""Formats the programs and the linked files of metrics.json as rows and text for all reports."""

from __future__ import annotations

from typing import Protocol

from msgspec import UNSET, UnsetType

from components.core.projects.speed.types import TimeChange
from components.evaluation.metrics_types import FULL_LTO, BenchmarkSummary, LinkedTotal, LinkedTotals, Verdict
from components.evaluation.report.formatting import change, interval

COMPARATIVE = ("fewer instructions", "more instructions")


class Judged(Protocol):
    """The figures of a verdict, in metrics.json and in the gate of a model card; percentages as in `SizeMetrics`."""

    verdict: Verdict
    reduction_percent: float | None
    min_reduction_percent: float
    refused_because: str | None


def headline_total(linked: LinkedTotals) -> LinkedTotal | None:
    """Return the sum over all programs and shared libraries of the main link variant; None if none were linked, or only
    with full LTO, where the policy does not decide."""
    variant = linked.get("default") or next((sums for name, sums in linked.items() if name != FULL_LTO), None)
    return variant["all"] if variant else None


def verdict(figures: Judged, programs: BenchmarkSummary | None) -> str:
    """Return the verdict of `figures` (metrics.json, or a model card's gate) with its reason: `refused_because`, or the
    executed instructions or the time of programs if these alone decided it."""
    text = str(figures.verdict)
    if figures.refused_because:
        return f"{text}, because {figures.refused_because}"
    if figures.verdict == "better" or programs is None or (reason := why_slower(programs)) is None:
        return text
    reduction = figures.reduction_percent
    enough = reduction is not None and reduction >= figures.min_reduction_percent
    return f"{text}, because {reason}" if enough else text


def why_slower(programs: BenchmarkSummary) -> str | None:
    """Return why the policy makes all programs together slower; None if it does not."""
    if programs.instructions.policy > programs.instructions.stock:
        return "programs execute more instructions"
    if programs.time is not UNSET and programs.time.interval_percent[0] > 0:
        return "programs take more time"
    return None


def summary(programs: BenchmarkSummary) -> str:
    counts, count = programs.instructions, len(programs.programs)
    total = change(programs.reduction_percent, COMPARATIVE)
    mean = change(programs.geometric_mean_reduction_percent, ("fewer", "more"))
    text = (
        f"{count} run{'s' if count > 1 else ''} of programs of whole projects: {total} "
        f"({counts.stock:,} → {counts.policy:,} in sum; geometric mean {mean}), counted by {programs.counter}"
    )
    if (time := programs.time) is UNSET:
        return text
    change_percent, bounds = f"{time.change_percent:+.2f}%", interval(time.interval_percent)
    return f"{text}; processor time {change_percent}, 95% interval {bounds}, {time.repeats} runs of each build"


def columns(programs: BenchmarkSummary) -> tuple[str, ...]:
    """Return the titles of `rows`; with cycles if the machine counts them, and with time if it was taken."""
    cycles = ("cycles",) if _cycles(programs) else ()
    time = () if programs.time is UNSET else ("time", "95% interval")
    return ("program", "instructions, stock", "instructions, policy", "change", *cycles, *time, "machine code")


def rows(programs: BenchmarkSummary) -> list[tuple[str, ...]]:
    """Return a row for each program, with a cell for each of `columns`."""
    cycles = _cycles(programs)
    return [
        (
            f"{entry.project}/{entry.name}",
            f"{entry.stock.instructions:,}",
            f"{entry.policy.instructions:,}",
            f"{entry.change_percent:+.2f}%",
            *((_change(entry.stock.cycles, entry.policy.cycles),) if cycles else ()),
            *(() if programs.time is UNSET else _time_cells(entry.time)),
            _change(entry.stock.text_bytes, entry.policy.text_bytes),
        )
        for entry in programs.programs
    ]


def _time_cells(time: TimeChange | UnsetType) -> tuple[str, str]:
    return ("–", "–") if time is UNSET else (f"{time.change_percent:+.2f}%", interval(time.interval_percent))


def _cycles(programs: BenchmarkSummary) -> bool:
    return any(entry.stock.cycles or entry.policy.cycles for entry in programs.programs)


def _change(stock: int | None, policy: int | None) -> str:
    return f"{100.0 * (policy / stock - 1.0):+.2f}%" if stock and policy else "–"
