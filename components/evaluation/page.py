"""report.html: one self-contained page that a compiler engineer reads from the top down, verdict first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from components.evaluation import table
from components.evaluation.curve import Curve
from components.evaluation.judges import judge_of
from components.evaluation.measurements import Measured
from components.evaluation.plots import training_reward
from components.evaluation.words import change, interval


def write_page(path: Path, metrics: dict[str, Any], measured: Measured, curve: Curve | None) -> None:
    """Writes the page.

    Args:
        path: the file to write.
        metrics: what metrics.json holds.
        measured: what is behind it, for modules or functions one by one.
        curve: the training's reward, None where no training was given.
    """
    judge = judge_of(metrics)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,  # module and project names come from other people's file systems
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["change"] = lambda percent: change(percent, judge.comparative)
    environment.filters["interval"] = interval
    environment.filters["bytes"] = lambda count: f"{count:,}"
    environment.filters["signed_bytes"] = lambda count: f"{count:+,}".replace("-", "−")
    # Plots are the only markup that is not escaped; matplotlib has escaped the names within them.
    template, values = judge.page(metrics, measured)
    text = environment.get_template(template).render(
        metrics=metrics,
        verdict=table.verdict(metrics),
        told=table.told(metrics),
        columns=[(title, group) for (title, _), group in zip(table.COLUMNS, table.groups(metrics), strict=True)],
        training_plot=Markup(training_reward(curve, judge.reward)) if curve else None,
        **values,
    )
    path.write_text(text, encoding="utf-8")
