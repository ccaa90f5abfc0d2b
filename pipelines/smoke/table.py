"""The table of the smoke test: text for the log, Markdown, HTML, and figures."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Sequence
from pathlib import Path

import jinja2

from components.platform.console.escape import escape_line, markdown_text
from pipelines.smoke.rows import STATUSES, TABLE_HEADING, Row, StepChecks

_IN_PARALLEL = "ray"
"""The step that waits for no other one."""
_AFTER_PARALLEL = "retry"
"""The first step that waits for that one, too."""
_TITLES = ("step", "check", "result", "found, and what to do", "s")


def waits_s(steps: Sequence[StepChecks]) -> dict[str, float]:
    """Return the seconds that the server needs from the end of a step to the beginning of the next, by the next one.

    These are the step's upload and its pod's end, the server's own work, and the start of the next pod, with an image
    that may have to be pulled. The clocks of nodes may differ.

    Args:
        steps: in any order.
    """
    chain = sorted((step for step in steps if step.step != _IN_PARALLEL), key=lambda step: step.started_s)
    parallel_ended_s = max((step.ended_s for step in steps if step.step == _IN_PARALLEL), default=0.0)

    def wait_s(before: StepChecks, after: StepChecks) -> float:
        ended_s = max(before.ended_s, parallel_ended_s) if after.step == _AFTER_PARALLEL else before.ended_s
        return max(0.0, after.started_s - ended_s)

    return {after.step: wait_s(before, after) for before, after in itertools.pairwise(chain)}


def time_between_steps(steps: Sequence[StepChecks]) -> str:
    """Return what the check of this name found. steps: as for `waits_s`, at least two in sequence."""
    waits = waits_s(steps)
    each = ", ".join(f"{wait:.0f} s before {step}" for step, wait in waits.items())
    return f"{statistics.mean(waits.values()):.0f} s on average: {each}"


def write_table(directory: Path, steps: Sequence[StepChecks]) -> list[str]:
    """Write table.md, table.html and summary.json; return the lines of the table for a log, the heading first."""
    ordered = sorted(steps, key=lambda step: (step.step == _IN_PARALLEL, step.started_s))
    rows = [(step.step, row) for step in ordered for row in step.rows]
    heading = TABLE_HEADING + summary([row for _step, row in rows])
    (directory / "table.md").write_text("\n".join([f"**{heading}**", "", *_markdown(rows), ""]), encoding="utf-8")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        finalize=lambda value: escape_line(value) if type(value) is str else value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("table.html.jinja").render(heading=heading, titles=_TITLES, rows=rows)
    (directory / "table.html").write_text(page, encoding="utf-8")
    counts = {status.replace(" ", "_"): sum(row.status == status for _step, row in rows) for status in STATUSES}
    figures = {**counts, "seconds_between_steps": round(statistics.mean(waits_s(steps).values()), 1)}
    (directory / "summary.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return [heading, *(line for step, row in rows for line in row.lines(step))]


def summary(rows: Sequence[Row]) -> str:
    """Return the numbers of rows by status as text."""
    works, fails, not_tried = (sum(row.status == status for row in rows) for status in STATUSES)
    return f"of {len(rows)} checks {works} work, {fails} fail, {not_tried} were not tried"


def _markdown(rows: Sequence[tuple[str, Row]]) -> list[str]:
    lines = ["| " + " | ".join(_TITLES) + " |", "|---" * len(_TITLES) + "|"]
    for step, row in rows:
        text = markdown_text(row.found) + (f"<br>{markdown_text(row.remedy)}" if row.remedy else "")
        cells = (markdown_text(step), markdown_text(row.what), row.status, text, f"{row.seconds:.1f}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines
