"""What report.html says of sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from components.evaluation import program_rows, size_plots, table
from components.evaluation.measurements import BASELINE, POLICY, Measurements
from components.evaluation.plots import GROUP_TITLES, project_changes
from components.evaluation.sizes import part_rows, size_rows
from components.evaluation.words import policy_title

TEMPLATE = "size.html.jinja"
WORST = 10


def size_page(metrics: dict[str, Any], measured: Measurements) -> tuple[str, dict[str, Any]]:
    """See `Judge.page`."""
    return TEMPLATE, {
        "rows": size_rows(metrics, table.groups(metrics)),
        "part_rows": part_rows(metrics, table.groups(metrics)),
        "policy_title": policy_title(metrics),
        "worst": worst_modules(measured),
        "binaries_total": binaries_by_project(metrics["binaries"]),
        "binary_sections": table.SECTIONS,
        **program_rows.page_values(metrics.get("programs")),
        "linked_lines": table.linked_lines(metrics["linked"]),
        "modules_plot": Markup(size_plots.module_changes(measured)),
        "projects_plot": Markup(project_changes(metrics, "size", "smaller")),
        "sweep_plot": Markup(size_plots.sweep(metrics)) if metrics["sweep"] else None,
    }


@dataclass(frozen=True)
class Grown:
    """A module that the policy made larger. `growth_percent` is of its -Oz size (infinite where that is 0)."""

    name: str
    group: str
    baseline_bytes: int
    policy_bytes: int
    growth_percent: float


def worst_modules(measured: Measurements, count: int = WORST) -> list[Grown]:
    """The modules that grew most in percent of their own size, worst first; fewer than `count` where fewer grew.

    Ties go to the larger growth in bytes, then to the name, so that the list is the same in every run.
    """
    grown = []
    for index, name in enumerate(measured.modules):
        baseline, policy = int(measured.sizes[BASELINE][index]), int(measured.sizes[POLICY][index])
        if policy > baseline:
            group = GROUP_TITLES["unseen_projects" if measured.unseen_project[index] else "unseen_modules"]
            percent = 100.0 * (policy / baseline - 1.0) if baseline else float("inf")
            grown.append(Grown(name, group, baseline, policy, percent))
    grown.sort(key=lambda module: (-module.growth_percent, module.baseline_bytes - module.policy_bytes, module.name))
    return grown[:count]


def binaries_by_project(binaries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sum what compare-binaries measured, a row per link variant, project and kind: programs apart from libraries."""
    keys = ("link_variant", "project", "kind")
    totals: dict[tuple[str, ...], dict[str, Any]] = {}
    for binary in binaries:
        row = totals.setdefault(
            tuple(binary[key] for key in keys),
            {**{key: binary[key] for key in keys}, "count": 0, "stock": {}, "policy": {}},
        )
        row["count"] += 1
        for side in ("stock", "policy"):
            for section, size_bytes in binary[side].items():
                row[side][section] = row[side].get(section, 0) + size_bytes
    return [totals[key] for key in sorted(totals)]
