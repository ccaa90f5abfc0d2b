"""The score objective: the factor by which LLVM's score of each function changes, all functions weighted equally."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from components.core.objectives.objective import Labels, Outcome

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from components.core.compiler.sample import Sample
    from components.core.objectives.objective import Float64


class Score:
    """See Objective. Methods import NumPy and pyarrow themselves: the module must be importable without them."""

    name = "score"
    labels = Labels(
        less="lower scores",
        more="higher scores",
        quantity="score",
        better="better",
        case="function",
        values="scores",
        unit="score",
        values_key="scores",
        directions=("lower", "equal", "higher"),
        title="Scores of the held-out functions against LLVM's heuristic, geometric mean",
        worst="Functions whose score rose most",
        worst_key="worst_functions",
        no_worse="None rose.",
        reward="% lower scores than LLVM's heuristic",
        axis="score under LLVM's heuristic + 1",
        projects="instructions of programs",
    )
    additive = False
    needs_log = True
    forks_at_flips = True
    uses_function_sizes = False
    sweeps_thresholds = False
    recipe_field = "benchmarks"
    # A score is LLVM's estimate of what code costs; where programs were run, their instruction counts decide.
    programs_decide = True

    def outcome(self, sample: Sample) -> Outcome:
        return sample.readable_scores()

    def baselines(self, trace: Path) -> dict[str, Outcome]:
        from components.core.formats.trace import read_columns  # nodes of a cluster have no pyarrow

        columns = read_columns(trace, ["module", "context", "step", "reward"])
        first = columns["step"] == 0
        baselines: dict[str, dict[str, float]] = {}
        rows = zip(columns["module"][first], columns["context"][first], columns["reward"][first].tolist(), strict=True)
        for module, function, score in rows:
            baselines.setdefault(module, {})[function] = score
        return {**baselines}

    def reduction(self, baseline: Float64, other: Float64) -> float | None:
        from components.core.objectives.geometric_mean import geometric_mean_reduction, log_scores

        return geometric_mean_reduction(log_scores(other) - log_scores(baseline)) if baseline.size else None

    def without_each(self, baseline: Float64, other: Float64, unit: NDArray[np.int64]) -> tuple[Float64, Float64]:
        import numpy as np

        from components.core.objectives.estimate import ratios_without_each
        from components.core.objectives.geometric_mean import log_scores

        log_factors = log_scores(other) - log_scores(baseline)
        means, functions = ratios_without_each(log_factors, np.ones_like(log_factors), unit)
        return -np.expm1(means), functions

    def growth_percent(self, baseline: Float64, other: Float64) -> Float64:
        import numpy as np

        from components.core.objectives.geometric_mean import Float64 as Array
        from components.core.objectives.geometric_mean import log_scores

        growth: Array = 100.0 * np.expm1(log_scores(other) - log_scores(baseline))
        return growth

    def plot_positions(self, baseline: Float64) -> Float64:
        from components.core.objectives.geometric_mean import FLOOR

        return baseline + FLOOR

    def extent(self, baseline: Outcome) -> str:
        return f"{len(baseline)} functions"


SCORE = Score()
