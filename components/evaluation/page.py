"""report.html: one self-contained page that a compiler engineer reads from the top down, verdict first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from components.evaluation import plots, table
from components.evaluation.curve import Curve
from components.evaluation.measurements import BASELINE, POLICY, Measurements

WORST = 10


def write_page(path: Path, metrics: dict[str, Any], measured: Measurements, curve: Curve | None) -> None:
    """Writes the page.

    Args:
        path: the file to write.
        metrics: what metrics.json holds.
        measured: the sizes behind it, for the modules one by one.
        curve: the training's reward, None where no training was given.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,  # module and project names come from other people's file systems
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["change"] = table.change
    environment.filters["bytes"] = lambda count: f"{count:,}"
    environment.filters["signed_bytes"] = lambda count: f"{count:+,}".replace("-", "−")
    # The SVGs are the only markup that is not escaped; matplotlib has escaped the names within them.
    drawn = {
        "modules": Markup(plots.module_changes(measured)),
        "projects": Markup(plots.project_changes(metrics)),
        "training": Markup(plots.training_reward(curve)) if curve else None,
        "sweep": Markup(plots.sweep(metrics)) if metrics["sweep"] else None,
    }
    text = environment.get_template("report.html.jinja").render(
        metrics=metrics,
        columns=[(title, metrics["groups"][place[-1]] if place else metrics) for title, place in table.COLUMNS],
        rows=table.rows(metrics),
        policy_title=table.policy_title(metrics),
        worst=worst_modules(measured),
        plots=drawn,
        binaries_total=binaries_by_project(metrics["binaries"]),
    )
    path.write_text(text, encoding="utf-8")


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
            group = plots.GROUP_TITLES["unseen_projects" if measured.unseen_project[index] else "unseen_modules"]
            percent = 100.0 * (policy / baseline - 1.0) if baseline else float("inf")
            grown.append(Grown(name, group, baseline, policy, percent))
    grown.sort(key=lambda module: (-module.growth_percent, module.baseline_bytes - module.policy_bytes, module.name))
    return grown[:count]


def binaries_by_project(binaries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sums of what compare-binaries measured, a row per project and kind: programs apart from libraries."""
    totals: dict[tuple[str, str], dict[str, Any]] = {}
    for binary in binaries:
        row = totals.setdefault(
            (binary["project"], binary["kind"]),
            {"project": binary["project"], "kind": binary["kind"], "count": 0, "stock": {}, "policy": {}},
        )
        row["count"] += 1
        for side in ("stock", "policy"):
            for section, size_bytes in binary[side].items():
                row[side][section] = row[side].get(section, 0) + size_bytes
    return [totals[key] for key in sorted(totals)]
