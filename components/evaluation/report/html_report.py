"""Writes report.html: one self-contained page for compiler engineers, verdict first.

Each objective has a template, <name>.html.jinja; all templates get the same variables.
"""

from __future__ import annotations

from pathlib import Path

import jinja2
from markupsafe import Markup
from msgspec import UNSET

from components.core.formats.training_curve import Curve
from components.core.objectives.geometric_mean import FLOOR
from components.evaluation.benchmarks import program_rows
from components.evaluation.measurements import Measurements
from components.evaluation.metrics_types import Metrics, SizeMetrics
from components.evaluation.report import flags_tables, linked_tables, terminal_report
from components.evaluation.report.formatting import change, interval, policy_title
from components.evaluation.report.plots import MAX_POINTS, case_changes, project_changes, sweep, training_reward
from components.evaluation.report.policy_choice import comparison_notes, release_notes, verdict_subject
from components.evaluation.report.regressions import worst_cases
from components.platform.console.escape import escape_line


def write_page(path: Path, metrics: Metrics, measured: Measurements, curve: Curve | None) -> None:
    """Write the page.

    Args:
        path: the file to write.
        metrics: content of metrics.json.
        measured: the values of each module or function.
        curve: the training's reward, None if no training was given.
    """
    objective = measured.objective
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,  # module and project names are untrusted
        finalize=lambda value: escape_line(value) if type(value) is str else value,  # Markup is a subclass
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["change"] = lambda percent: change(percent, objective.labels.comparative)
    environment.filters["interval"] = interval
    environment.filters["bytes"] = lambda count: f"{count:,}"
    environment.filters["signed_bytes"] = lambda count: f"{count:+,}".replace("-", "−")
    sizes = metrics if isinstance(metrics, SizeMetrics) else None
    # Only plots are not escaped; matplotlib escapes the names in them.
    text = environment.get_template(f"{objective.name}.html.jinja").render(
        metrics=metrics,
        verdict=terminal_report.verdict(metrics),
        reduction_text=terminal_report.describe_reduction(metrics),
        columns=[(title, group) for title, group in zip(terminal_report.COLUMNS, metrics.columns, strict=True)],
        rows=terminal_report.value_rows(metrics),
        comparison_notes=comparison_notes(metrics),
        release_notes=release_notes(metrics),
        verdict_subject=verdict_subject(metrics),
        part_rows=terminal_report.part_rows(sizes) if sizes else [],
        policy_title=policy_title(metrics),
        worst=worst_cases(measured),
        binaries_total=linked_tables.binaries_by_project(metrics.binaries),
        binary_sections=linked_tables.SECTIONS,
        linked_total=program_rows.headline_total(sizes.linked) if sizes else None,
        linked_lines=linked_tables.linked_lines(sizes.linked if sizes else {}),
        flags_tables=flags_tables,
        flags=sizes.flags if sizes and sizes.flags is not UNSET else None,
        cases_plot=Markup(case_changes(measured)),
        projects_plot=Markup(project_changes(metrics, objective.labels)),
        sweep_plot=Markup(sweep(sizes)) if sizes and sizes.sweep else None,
        training_plot=Markup(training_reward(curve, objective.labels.reward)) if curve else None,
        max_points=MAX_POINTS,
        floor=FLOOR,
        **program_rows.template_values(metrics.programs),
    )
    path.write_text(text, encoding="utf-8")
