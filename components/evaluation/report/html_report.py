"""Writes report.html: one self-contained page for compiler engineers, verdict first.

Each objective has a template, <name>.html.jinja; all templates get the same variables.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import jinja2
from markupsafe import Markup
from msgspec import UNSET

from components.core.compiler.objects.function_names import demangle, shorten
from components.core.formats.training_curve import Curve
from components.core.objectives.geometric_mean import FLOOR
from components.evaluation.benchmarks import program_rows
from components.evaluation.measurements import Measurements
from components.evaluation.metrics_types import FunctionChange, Metrics, SizeMetrics
from components.evaluation.report import flags_tables, linked_tables, policy_choice, terminal_report
from components.evaluation.report.changed_functions import by_direction, decision_lines, explain_commands
from components.evaluation.report.formatting import change, interval, required_in_words
from components.evaluation.report.plots import MAX_POINTS, case_changes, project_changes, sweep, training_reward
from components.evaluation.report.regressions import worst_cases
from components.platform.console.escape import escape_line
from components.platform.launcher import step_cost
from components.platform.launcher.step_cost import StepCost

_MAX_NAME = 90
"""Characters of a function's name in a table; its title has all of it."""
_MAX_LINE = 130


def write_page(
    path: Path,
    metrics: Metrics,
    measured: Measurements,
    curve: Curve | None,
    costs: Mapping[str, StepCost] = MappingProxyType({}),
) -> None:
    """Write the page.

    Args:
        curve: reward of the training, if it is known.
        costs: of the steps of the run so far, by task.
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
    worst = worst_cases(measured)
    # Only plots are not escaped; matplotlib escapes the names in them.
    text = environment.get_template(f"{objective.name}.html.jinja").render(
        metrics=metrics,
        headline=policy_choice.headline(metrics),
        required=required_in_words(metrics.min_reduction_percent, objective.labels.comparative),
        estimate_lines=policy_choice.estimate_lines(metrics),
        caveats=policy_choice.caveats(metrics),
        columns=terminal_report.shown_columns(metrics),
        rows=terminal_report.value_rows(metrics),
        comparison_notes=policy_choice.comparison_notes(metrics),
        release_notes=policy_choice.release_notes(metrics),
        verdict_subject=policy_choice.verdict_subject(metrics),
        interval_rows=terminal_report.interval_rows([group for _, group in terminal_report.shown_columns(metrics)]),
        part_rows=terminal_report.part_rows(sizes) if sizes else [],
        policy_title=policy_choice.policy_row(metrics),
        worst=worst,
        worst_names=[(name, shorten(name, _MAX_NAME)) for name in demangle([case.name for case in worst])],
        function_tables=_function_tables(sizes) if sizes else [],
        explain_commands=explain_commands(sizes.module_functions, metrics.inputs) if sizes else [],
        binaries_total=linked_tables.binaries_by_project(metrics.binaries),
        binary_sections=linked_tables.SECTIONS,
        linked_total=program_rows.headline_total(sizes.linked) if sizes else None,
        linked_lines=terminal_report.linked_lines(metrics),
        own_build=sizes.own_build if sizes and sizes.own_build is not UNSET else None,
        flags_tables=flags_tables,
        flags=sizes.flags if sizes and sizes.flags is not UNSET else None,
        cases_plot=Markup(case_changes(measured)),
        projects_plot=Markup(project_changes(metrics, objective.labels)),
        sweep_plot=Markup(sweep(sizes)) if sizes and sizes.sweep else None,
        training_plot=Markup(training_reward(curve, objective.labels.reward)) if curve else None,
        max_points=MAX_POINTS,
        floor=FLOOR,
        program_rows=program_rows,
        cost_columns=step_cost.COLUMNS,
        cost_rows=step_cost.table_rows(costs),
        cost_note=step_cost.NOTE,
    )
    path.write_text(text, encoding="utf-8")


def _function_tables(metrics: SizeMetrics) -> list[tuple[str, list[tuple[FunctionChange, str, list[str]]]]]:
    """Return the tables of functions: title, and for each function itself, its name cut, and its decisions."""
    return [
        (
            f"{title} {direction}",
            [(change, shorten(change.function, _MAX_NAME), decision_lines(change, _MAX_LINE)) for change in chosen],
        )
        for changes, title in (
            (metrics.module_functions, "Functions of held-out modules"),
            (metrics.binary_functions, "Functions of linked binaries"),
        )
        for direction, chosen in by_direction(changes)
    ]
