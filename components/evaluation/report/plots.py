"""Draws the plots of report.html, each as one inline SVG element."""

from __future__ import annotations

import io
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from components.core.formats.training_curve import Curve
from components.core.objectives import Labels
from components.evaluation.measurements import BASELINE, POLICY, Measurements
from components.evaluation.metrics_types import Metrics, SizeComparison, SizeMetrics
from components.evaluation.report.formatting import GROUP_TITLES
from components.evaluation.report.policy_choice import start_row
from components.platform.console.escape import escape_line

# Dark blue and light orange are distinguishable with every kind of colour vision and in grey print.
SMALLER = "#1f5fa8"
LARGER = "#e08a1e"
GREY = "#8a8f98"
GROUP_COLOURS = {"unseen_modules": "#1f5fa8", "unseen_projects": "#2f9e8f"}

MAX_POINTS = 2_000
"""Maximum points per group; more make a page slow to open. Larger groups show every k-th case, best to worst."""

_SYMLOG_PERCENT = 30.0
"""If a case changes by more than this, the scale is linear up to a third of it and logarithmic beyond."""

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: searchable, and in the page's font
    "svg.hashsalt": "mlgo",  # the same figures give the same bytes
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e6ea",
    "text.parse_math": False,  # a "$" in a module's name is a "$"
}


def case_changes(measured: Measurements) -> str:
    """Draw the change of every case, by baseline value and from best to worst, with a colour for each group."""
    labels = measured.objective.labels
    extent = measured.objective.plot_positions(measured.values[BASELINE])
    change = measured.objective.growth_percent(measured.values[BASELINE], measured.values[POLICY])
    drawn = extent > 0
    extent, change, unseen = extent[drawn], change[drawn], measured.case_in_unseen_project[drawn]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 3.8), layout="constrained")
        by_extent, by_rank = figure.subplots(1, 2, sharey=True)
        for group, mask in (("unseen_modules", ~unseen), ("unseen_projects", unseen)):
            if not mask.any():
                continue
            colour, label = GROUP_COLOURS[group], f"{GROUP_TITLES[group]} ({mask.sum()})"
            order = np.argsort(change[mask], kind="stable")
            rank = (np.arange(order.size) + 0.5) / order.size * 100
            if order.size > MAX_POINTS:
                chosen = np.linspace(0, order.size - 1, MAX_POINTS).astype(np.int64)
                order, rank = order[chosen], rank[chosen]
            x, y = extent[mask][order], change[mask][order]
            by_extent.scatter(x, y, s=16, color=colour, alpha=0.65, linewidths=0, label=label)
            by_rank.plot(rank, y, color=colour, marker=".", markersize=4, linewidth=1.2)
        if change.size and np.abs(change).max() > _SYMLOG_PERCENT:
            # On a linear scale, one tiny module that grew by half would flatten all others against the zero line.
            by_extent.set_yscale("symlog", linthresh=_SYMLOG_PERCENT / 3)
            by_extent.yaxis.set_major_locator(FixedLocator([-100, -50, -20, -10, -5, 0, 5, 10, 20, 50, 100, 500]))
            by_extent.yaxis.set_major_formatter(FuncFormatter(lambda percent, _: f"{percent:g}"))
        by_extent.set_xscale("log")
        by_extent.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
        by_extent.set_xlabel(labels.axis)
        by_extent.set_ylabel(f"{labels.quantity} change (%), below 0 is {labels.better}")
        if change.size:
            by_extent.legend(frameon=False, fontsize=9)
        by_rank.set_xlabel(f"{labels.cases}, best to worst (% of the group)")
        for axes in (by_extent, by_rank):
            zero_line(axes, horizontal=True)
        return svg(figure, f"{labels.quantity.capitalize()} change of each held-out {labels.case}")


def project_changes(metrics: Metrics, labels: Labels) -> str:
    """Draw the change per project under the policy, with its 95% interval if there are enough modules."""
    projects = [
        (name, entry, -entry.reduction_percent)
        for name, entry in metrics.per_project.items()
        if entry.reduction_percent is not None
    ]
    projects.sort(key=lambda project: (project[1].group, project[2]), reverse=True)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 0.9 + 0.34 * len(projects)), layout="constrained")
        axes = figure.subplots()
        for row, (_, entry, change) in enumerate(projects):
            axes.barh(row, change, height=0.62, color=SMALLER if change <= 0 else LARGER)
            interval = entry.other_modules.interval95 if entry.other_modules else None
            if interval:
                axes.plot([-interval[1], -interval[0]], [row, row], color="#30343b", linewidth=1.2)
        titles = [
            f"{_shorten(name)}{', unseen project' if entry.group == 'unseen_projects' else ''} ({entry.modules})"
            for name, entry, _ in projects
        ]
        axes.set_yticks(range(len(titles)), titles)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(
            f"{labels.quantity} change (%), left of 0 is {labels.better}; thin line: 95% interval for its other modules"
        )
        zero_line(axes, horizontal=False)
        return svg(figure, f"{labels.quantity.capitalize()} change per project")


def sweep(metrics: SizeMetrics) -> str:
    """Draw the default heuristic at each -inline-threshold next to the policies."""
    thresholds = [int(threshold) for threshold in metrics.sweep]
    changes = [-_reduction_or_zero(comparison) for comparison in metrics.sweep.values()]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.0), layout="constrained")
        axes = figure.subplots()
        zero_line(axes, horizontal=True)
        axes.plot(thresholds, changes, color=GREY, marker="o", linewidth=1.4, label="-Oz with this threshold")
        axes.axhline(-_reduction_or_zero(metrics), color=SMALLER, linewidth=1.8, label="policy")
        if metrics.warmstart:
            axes.axhline(
                -_reduction_or_zero(metrics.warmstart),
                color=LARGER,
                linewidth=1.4,
                linestyle="--",
                label=start_row(metrics),
            )
        axes.set_xticks(thresholds)
        axes.set_xlabel("-inline-threshold")
        axes.set_ylabel("size change (%), below 0 is smaller")
        axes.legend(frameon=False, fontsize=9)
        return svg(figure, "Size change for each -inline-threshold")


def _reduction_or_zero(comparison: SizeComparison) -> float:
    return comparison.reduction_percent or 0.0


def training_reward(curve: Curve, reward: str) -> str:
    """Draw mean reward over the minutes of the training, its middle half shaded, and the validation result.

    `reward` is the meaning of 1% reward, such as "% smaller than -Oz"."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(10, 3.4), layout="constrained")
        axes = figure.subplots()
        axes.fill_between(
            curve.low.minutes,
            100 * curve.low.values,
            100 * curve.high.values,
            color=SMALLER,
            alpha=0.15,
            linewidth=0,
            label="percentiles 25 to 75",
        )
        mean_label = "mean over an iteration's training modules"
        axes.plot(curve.mean.minutes, 100 * curve.mean.values, color=SMALLER, linewidth=1.4, label=mean_label)
        if curve.validation.minutes.size:
            axes.plot(
                curve.validation.minutes,
                100 * curve.validation.values,
                color=LARGER,
                marker="o",
                markersize=4,
                linewidth=1.2,
                label="validation modules, greedy policy",
            )
        axes.set_xlabel("minutes of training")
        axes.set_ylabel(f"reward ({reward})")
        axes.legend(frameon=False, fontsize=9, loc="lower right")
        zero_line(axes, horizontal=True)
        return svg(figure, "Training reward over time")


def zero_line(axes: Axes, horizontal: bool) -> None:
    (axes.axhline if horizontal else axes.axvline)(0, color="#30343b", linewidth=0.8)


def _shorten(name: str, length: int = 40) -> str:
    shown = escape_line(name)
    return shown if len(shown) <= length else f"{shown[: length - 1]}…"


def svg(figure: Figure, title: str) -> str:
    """Return the figure as an <svg> element without XML prologue; screen readers read `title`."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Title": title})
    text = stream.getvalue()
    return text[text.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{title}"', 1)
