"""The pictures of a report on sizes."""

from __future__ import annotations

from typing import Any

import matplotlib
from matplotlib.figure import Figure

from components.evaluation.measurements import BASELINE, POLICY, Measurements
from components.evaluation.plots import GREY, LARGER, SMALLER, STYLE, case_changes, svg, zero_line


def module_changes(measured: Measurements) -> str:
    """Size change of every module that has any text."""
    some = measured.sizes[BASELINE] > 0
    baseline, policy = measured.sizes[BASELINE][some], measured.sizes[POLICY][some]
    return case_changes(
        baseline / 1024, 100.0 * (policy / baseline - 1.0), measured.unseen_project[some],
        "size", "smaller", "modules", "text size under -Oz (KiB)",
    )  # fmt: skip


def sweep(metrics: dict[str, Any]) -> str:
    """The default heuristic at each -inline-threshold beside the policies."""
    thresholds = [int(threshold) for threshold in metrics["sweep"]]
    changes = [-_known(metrics["sweep"][str(threshold)]) for threshold in thresholds]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.0), layout="constrained")
        axes = figure.subplots()
        zero_line(axes, horizontal=True)
        axes.plot(thresholds, changes, color=GREY, marker="o", linewidth=1.4, label="-Oz with this threshold")
        axes.axhline(-_known(metrics), color=SMALLER, linewidth=1.8, label="policy")
        if metrics["warmstart"]:
            axes.axhline(-_known(metrics["warmstart"]), color=LARGER, linewidth=1.4, linestyle="--", label="warmstart")
        axes.set_xticks(thresholds)
        axes.set_xlabel("-inline-threshold")
        axes.set_ylabel("size change (%), below 0 is smaller")
        axes.legend(frameon=False, fontsize=9)
        return svg(figure, "Size change for each -inline-threshold")


def _known(comparison: dict[str, Any]) -> float:
    """Its reduction; that of modules without any text is drawn as none."""
    return comparison["reduction_percent"] or 0.0
