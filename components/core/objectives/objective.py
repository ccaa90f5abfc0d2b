"""The interface of an objective: its labels, what a compile yields, and how outcomes are compared.

Imports nothing heavy: a launcher without NumPy prints the figures of a run in another process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from components.core.compiler.sample import Sample

    Float64 = NDArray[np.float64]

Outcome = Mapping[str, float]
"""The result of one compile of a module: the value of each case. The only case of a module-level objective is ""."""


@dataclass(frozen=True)
class Labels:
    """How reports name an objective, and the keys that they write.

    Attributes:
        less, more: comparatives of a smaller and a larger value: "smaller", "larger".
        quantity: what changes, in plots: "size". better: the word for a decrease in plots.
        case: the unit of comparison: "module" or "function".
        values: the property of the cases that is compared: "text".
        unit: suffix of the keys of values in report.csv and model-card.json: "bytes".
        values_key: key of the values in measurements.json.
        directions: suffixes of the counts of cases in metrics.json: with a smaller, an equal and a larger value.
        title: title of the table that a run prints last.
        worst: heading of the cases that became worse; worst_key: their key in model-card.json; no_worse: the text if
            there are none.
        reward: the meaning of 1% of a training's reward.
        axis: label of the plot's axis of baseline values.
        projects: the property of whole projects that is compared.
    """

    less: str
    more: str
    quantity: str
    better: str
    case: str
    values: str
    unit: str
    values_key: str
    directions: tuple[str, str, str]
    title: str
    worst: str
    worst_key: str
    no_worse: str
    reward: str
    axis: str
    projects: str

    @property
    def cases(self) -> str:
        return f"{self.case}s"

    @property
    def comparative(self) -> tuple[str, str]:
        """The words for a decrease and an increase."""
        return self.less, self.more


class Objective(Protocol):
    """One objective; smaller values are better.

    Attributes:
        name: identifies the objective in files: "size" or "score".
        labels: labels in reports.
        additive: values of different cases add up (bytes), so that totals mean something. Otherwise values are compared
            by the geometric mean of their changes.
        needs_log: the value of each function is read from the training log, so that only the training clang yields it.
            A compile that logs or samples then writes no object.
        forks_at_flips: a flip changes the value of its own function only, so that forks of one compile measure all
            flips of a module. Otherwise sets of flips take a compile each.
        uses_function_sizes: credit of functions, and what a link keeps, need the sizes of functions.
        sweeps_thresholds: -inline-threshold changes the value, so that a sweep is a baseline.
        recipe_field: the recipe key that a project needs to be compared as a whole: "binaries" or "benchmarks".
        programs_decide: a policy whose programs execute more instructions is not better, regardless of the values.
    """

    name: str
    labels: Labels
    additive: bool
    needs_log: bool
    forks_at_flips: bool
    uses_function_sizes: bool
    sweeps_thresholds: bool
    recipe_field: str
    programs_decide: bool

    def outcome(self, sample: Sample) -> Outcome:
        """Return the outcome of a compile."""

    def baselines(self, trace: Path) -> dict[str, Outcome]:
        """Return the outcome of each module under the heuristic, for modules with decisions, from a trace."""

    def reduction(self, baseline: Float64, other: Float64) -> float | None:
        """Return the relative reduction of values [N] against their baselines; None if undefined."""

    def without_each(self, baseline: Float64, other: Float64, unit: NDArray[np.int64]) -> tuple[Float64, Float64]:
        """Return the reduction without each unit, and the weight of each unit in the whole, both [U].

        Units without values are left out. If fewer than two have a weight, the reductions are NaN.

        Args:
            baseline, other: [N], values of the same cases.
            unit: [N], the module or project of each case.
        """

    def growth_percent(self, baseline: Float64, other: Float64) -> Float64:
        """Return the growth of each value [N] in percent, as plots and lists of regressions show it."""

    def plot_positions(self, baseline: Float64) -> Float64:
        """Return the position of each baseline value [N] on a logarithmic plot, in the unit of `labels.axis`."""

    def extent(self, baseline: Outcome) -> str:
        """Return the size of a module as text."""
