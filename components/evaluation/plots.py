"""The pictures of report.html, each as one SVG element that stands in the page itself."""

from __future__ import annotations

import io
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from components.evaluation.curve import Curve
from components.evaluation.measurements import BASELINE, POLICY, Measurements

# Told apart by every kind of colour vision and in grey print: dark blue and light orange.
SMALLER = "#1f5fa8"
LARGER = "#e08a1e"
GREY = "#8a8f98"
GROUP_COLOURS = {"unseen_modules": "#1f5fa8", "unseen_projects": "#2f9e8f"}
GROUP_TITLES = {"unseen_modules": "unseen modules of known projects", "unseen_projects": "unseen projects"}

_WIDE_PERCENT = 30.0
"""Where a module changes by more than this, the scale is linear up to a third of it and logarithmic beyond."""

_STYLE: dict[Any, Any] = {
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


def module_changes(measured: Measurements) -> str:
    """Size change of every module: by its size, and from the best to the worst; the two groups in two colours."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(10, 3.8), layout="constrained")
        by_size, by_rank = figure.subplots(1, 2, sharey=True)
        baseline, policy = measured.sizes[BASELINE], measured.sizes[POLICY]
        for group, mask in (
            ("unseen_modules", ~measured.unseen_project & (baseline > 0)),
            ("unseen_projects", measured.unseen_project & (baseline > 0)),
        ):
            if not mask.any():
                continue
            change = 100.0 * (policy[mask] / baseline[mask] - 1.0)
            colour, label = GROUP_COLOURS[group], f"{GROUP_TITLES[group]} ({mask.sum()})"
            by_size.scatter(baseline[mask] / 1024, change, s=16, color=colour, alpha=0.65, linewidths=0, label=label)
            rank = (np.arange(change.size) + 0.5) / change.size * 100
            by_rank.plot(rank, np.sort(change), color=colour, marker=".", markersize=4, linewidth=1.2)
        if baseline.any() and np.abs(policy / np.maximum(baseline, 1) - 1.0).max() > _WIDE_PERCENT / 100.0:
            # One tiny module that grew by half must not flatten all others against the zero line.
            by_size.set_yscale("symlog", linthresh=_WIDE_PERCENT / 3)
            by_size.yaxis.set_major_locator(FixedLocator([-100, -50, -20, -10, -5, 0, 5, 10, 20, 50, 100, 500]))
            by_size.yaxis.set_major_formatter(FuncFormatter(lambda percent, _: f"{percent:g}"))
        by_size.set_xscale("log")
        by_size.xaxis.set_major_formatter(FuncFormatter(lambda kib, _: f"{kib:g}"))
        by_size.set_xlabel("text size under -Oz (KiB)")
        by_size.set_ylabel("size change (%), below 0 is smaller")
        by_size.legend(frameon=False, fontsize=9)
        by_rank.set_xlabel("modules, best to worst (% of the group)")
        for axes in (by_size, by_rank):
            _zero_line(axes, horizontal=True)
        return _svg(figure, "Size change of each held-out module")


def project_changes(metrics: dict[str, Any]) -> str:
    """Size change per project under the policy, with its 95% interval where there are enough modules."""
    projects = [(name, entry) for name, entry in metrics["per_project"].items() if entry["baseline_bytes"]]
    projects.sort(key=lambda pair: (pair[1]["group"], -pair[1]["reduction_percent"]), reverse=True)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(10, 0.9 + 0.34 * len(projects)), layout="constrained")
        axes = figure.subplots()
        for row, (_, entry) in enumerate(projects):
            change = -entry["reduction_percent"]
            axes.barh(row, change, height=0.62, color=SMALLER if change <= 0 else LARGER)
            interval = entry["reduction_percent_ci95"]
            if interval:
                axes.plot([-interval[1], -interval[0]], [row, row], color="#30343b", linewidth=1.2)
        labels = [
            f"{_clipped(name)}{', unseen project' if entry['group'] == 'unseen_projects' else ''} ({entry['modules']})"
            for name, entry in projects
        ]
        axes.set_yticks(range(len(labels)), labels)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("size change (%), left of 0 is smaller; thin line: 95% interval over modules")
        _zero_line(axes, horizontal=False)
        return _svg(figure, "Size change per project")


def training_reward(curve: Curve) -> str:
    """Mean reward over the minutes of the training, its middle half shaded, and what validation gave."""
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(10, 3.4), layout="constrained")
        axes = figure.subplots()
        if curve.low is not None and curve.high is not None:
            axes.fill_between(
                curve.low.minutes, 100 * curve.low.values, 100 * np.interp(
                    curve.low.minutes, curve.high.minutes, curve.high.values
                ), color=SMALLER, alpha=0.15, linewidth=0, label=curve.band_label,
            )  # fmt: skip
        axes.plot(curve.mean.minutes, 100 * curve.mean.values, color=SMALLER, linewidth=1.4, label=curve.mean_label)
        if curve.validation is not None:
            axes.plot(
                curve.validation.minutes, 100 * curve.validation.values,
                color=LARGER, marker="o", markersize=4, linewidth=1.2, label="validation modules, greedy policy",
            )  # fmt: skip
        axes.set_xlabel("minutes of training")
        axes.set_ylabel("reward (% smaller than -Oz)")
        axes.legend(frameon=False, fontsize=9, loc="lower right")
        _zero_line(axes, horizontal=True)
        return _svg(figure, "Training reward over time")


def sweep(metrics: dict[str, Any]) -> str:
    """The default heuristic at each -inline-threshold beside the policies."""
    thresholds = [int(threshold) for threshold in metrics["sweep"]]
    changes = [-_known(metrics["sweep"][str(threshold)]) for threshold in thresholds]
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(6.4, 3.0), layout="constrained")
        axes = figure.subplots()
        _zero_line(axes, horizontal=True)
        axes.plot(thresholds, changes, color=GREY, marker="o", linewidth=1.4, label="-Oz with this threshold")
        axes.axhline(-_known(metrics), color=SMALLER, linewidth=1.8, label="policy")
        if metrics["warmstart"]:
            axes.axhline(-_known(metrics["warmstart"]), color=LARGER, linewidth=1.4, linestyle="--", label="warmstart")
        axes.set_xticks(thresholds)
        axes.set_xlabel("-inline-threshold")
        axes.set_ylabel("size change (%), below 0 is smaller")
        axes.legend(frameon=False, fontsize=9)
        return _svg(figure, "Size change for each -inline-threshold")


def _known(comparison: dict[str, Any]) -> float:
    """Its reduction; that of modules without any text is drawn as none."""
    return comparison["reduction_percent"] or 0.0


def _zero_line(axes: Axes, horizontal: bool) -> None:
    (axes.axhline if horizontal else axes.axvline)(0, color="#30343b", linewidth=0.8)


def _clipped(name: str, length: int = 40) -> str:
    return name if len(name) <= length else f"{name[: length - 1]}…"


def _svg(figure: Figure, title: str) -> str:
    """The figure as an <svg> element, without the XML prologue; `title` is what a screen reader says."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Title": title})
    text = stream.getvalue()
    return text[text.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{title}"', 1)
