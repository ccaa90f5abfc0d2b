"""The table of what programs execute, for a terminal."""

from __future__ import annotations

from typing import Any


def print_programs(summary: dict[str, Any]) -> None:
    """Prints each run of a program, and all together; `summary` as `summarize_programs` gives it."""
    from rich.console import Console
    from rich.table import Table

    programs = summary["programs"]
    cycles = any(program[side]["cycles"] for program in programs for side in ("stock", "policy"))
    titles = ["instructions", "with the policy", "change"]
    titles += ["cycles", "with the policy", "change"] if cycles else []
    view = Table(title=f"Instructions that programs execute, counted by {summary['counter']}")
    view.add_column("program")
    for title in [*titles, "machine code", "change"]:
        view.add_column(title, justify="right")
    for program in programs:
        stock, policy = program["stock"], program["policy"]
        cells = _cells(stock["instructions"], policy["instructions"])
        if cycles:
            cells += _cells(stock["cycles"], policy["cycles"])
        text = _cells(stock["text_bytes"], policy["text_bytes"])
        view.add_row(f"{program['project']} {program['name']}", *cells, text[0], text[2])
    view.add_section()
    total = summary["instructions"]
    view.add_row("all", *_cells(total["stock"], total["policy"]))
    # Not a terminal: rich would guess 80 columns and fold every cell.
    console = Console() if Console().is_terminal else Console(width=140)
    console.print(view)
    mean = -summary["geometric_mean_reduction_percent"]
    console.print(f"geometric mean of the changes: {mean:+.2f}%", highlight=False)


def _cells(stock: int | None, policy: int | None) -> list[str]:
    if not stock or not policy:
        return ["–", "–", "–"]
    return [f"{stock:,}", f"{policy:,}", f"{100.0 * (policy / stock - 1.0):+.2f}%"]
