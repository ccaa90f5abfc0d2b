"""Draw the figures of docs/: python docs/draw_figures.py (in the environment of make setup).

pipeline.svg comes from the compiled pipeline, results.svg from the held-out results of the pretrained inlining policy.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import matplotlib
import yaml
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
PIPELINE = ROOT / "pipelines" / "compiled" / "training.yaml"
RESULTS = ROOT / "components" / "core" / "policy" / "pretrained" / "inlining" / "by_package.csv"
SMALLER, LARGER, GREY = "#1f5fa8", "#e08a1e", "#8a8f98"
_TITLES = {
    "toolchain-training": "training\nclang",
    "toolchain-release": "release\nclang",
    "select-policy": "select\npolicy",
    "tune": "tune\n(optional)",
    "ppo": "ppo\n(train)",
}
STYLE: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "mlgo", "font.size": 10}


def main() -> None:
    with matplotlib.rc_context(STYLE):
        _save(_pipeline(), "pipeline.svg")
        _save(_results(), "results.svg")


def _save(figure: Figure, name: str) -> None:
    figure.savefig(ROOT / "docs" / name, transparent=False, facecolor="white", metadata={"Date": None, "Creator": None})


def _tasks() -> dict[str, set[str]]:
    """Return each task of the pipeline with the tasks that it waits for; nested groups are flattened."""
    spec = next(iter(yaml.safe_load_all(PIPELINE.read_text())))
    found: dict[str, set[str]] = {}

    def visit(dag: dict[str, Any], before: set[str]) -> None:
        for name, task in dag["tasks"].items():
            waits = set(task.get("dependentTasks", ())) | before
            component = spec["components"][task["componentRef"]["name"]]
            if "dag" in component:
                visit(component["dag"], waits)
            elif task.get("triggerPolicy", {}).get("strategy") != "ALL_UPSTREAM_TASKS_COMPLETED":
                found[name] = waits

    visit(spec["root"]["dag"], set())
    return {name: waits & found.keys() for name, waits in found.items()}


def _pipeline() -> Figure:
    tasks = _tasks()
    depth: dict[str, int] = {}

    def level(name: str) -> int:
        if name not in depth:
            depth[name] = 1 + max((level(other) for other in tasks[name]), default=-1)
        return depth[name]

    columns: dict[int, list[str]] = {}
    for name in tasks:
        columns.setdefault(level(name), []).append(name)
    place = {
        name: (2.1 * column, 0.9 * (len(names) - 1) / 2 - 0.9 * row)
        for column, names in columns.items()
        for row, name in enumerate(names)
    }
    figure = Figure(figsize=(12, 2.2), layout="constrained")
    axes = figure.subplots()
    axes.axis("off")
    for name, waits in tasks.items():
        direct = waits - {indirect for other in waits for indirect in tasks[other]}
        for other in direct:
            (x0, y0), (x1, y1) = place[other], place[name]
            axes.annotate(
                "", (x1 - 0.85, y1), (x0 + 0.85, y0), arrowprops={"arrowstyle": "-|>", "color": GREY, "lw": 1.2}
            )
    for name, (x, y) in place.items():
        box = {"boxstyle": "round,pad=0.45", "facecolor": "#eaf1fa", "edgecolor": SMALLER}
        axes.text(x, y, _TITLES.get(name, name.replace("-", "\n")), ha="center", va="center", bbox=box)
    axes.set_xlim(-1, max(x for x, _ in place.values()) + 1)
    axes.set_ylim(min(y for _, y in place.values()) - 0.7, max(y for _, y in place.values()) + 0.7)
    return figure


def _results() -> Figure:
    with RESULTS.open(encoding="utf-8") as file:
        rows = [(float(row["reduction_percent"]), row["project"], row["trained_on"]) for row in csv.DictReader(file)]
    rows.sort(reverse=True)
    unseen = [row for row in rows if row[2] == "no"]
    half = -(-len(unseen) // 2)
    columns = {
        "unseen projects": unseen[:half],
        "unseen projects, continued": unseen[half:],
        "known projects, unseen modules": [row for row in rows if row[2] != "no"],
    }
    figure = Figure(figsize=(11, 0.2 * half + 0.9), layout="constrained")
    for axes, (title, shown) in zip(figure.subplots(1, len(columns), sharex=True), columns.items(), strict=True):
        for place, (reduction, _, _) in enumerate(shown):
            axes.barh(place, -reduction, height=0.66, color=SMALLER if reduction >= 0 else LARGER)
        axes.set_yticks(range(len(shown)), [name for _, name, _ in shown], fontsize=9)
        axes.set_ylim(half - 0.5, -0.5)
        axes.axvline(0, color="#30343b", linewidth=0.8)
        axes.set_title(title, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("change of held-out modules' text against -Oz (%), left of 0 is smaller", fontsize=10)
    return figure


if __name__ == "__main__":
    main()
