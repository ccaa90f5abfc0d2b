"""Judges by a score for each function: what counts is by which factor it changed, of all functions alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components.evaluation.words import change, interval, policy_title

if TYPE_CHECKING:
    from components.evaluation.config import EvaluationConfig
    from components.evaluation.score_measurements import ScoreMeasurements
    from components.evaluation.variants import Variant
    from components.formats.corpus import Module
    from components.formats.toolchain import Toolchain
    from components.projects.recipe import Recipe
    from components.workers.pool import WorkerPool


class Scores:
    """See Judge. What this imports within its methods is heavy: numpy, matplotlib, jinja2."""

    figures = frozenset({"modules", "functions", "reduction_percent", "groups"})
    comparative = ("lower scores", "higher scores")
    title = "Scores of the held-out functions against LLVM's heuristic, geometric mean"
    cases, judged = "functions", "scores"
    worst, worst_key, none_worse = "Functions whose score rose most", "worst_functions", "None rose."
    reward = "% lower scores than LLVM's heuristic"
    listed, of_projects = "benchmarks", "instructions of programs"
    swept = False

    def plan(
        self, config: EvaluationConfig, training: Toolchain, release: Toolchain | None
    ) -> tuple[Variant, ...]:
        from components.evaluation.variants import plan_scores

        return plan_scores(config, training)

    def compiled_by(self, release: Toolchain | None) -> str:
        return "training"

    def measure(
        self, pool: WorkerPool, config: EvaluationConfig, variants: Sequence[Variant], modules: Sequence[Module],
        heldout_projects: Collection[str], earlier: ScoreMeasurements | None,
    ) -> ScoreMeasurements:  # fmt: skip
        from components.evaluation.measure_scores import measure_scores

        return measure_scores(pool, config, variants, modules, heldout_projects, earlier)

    def require_tools(self, config: EvaluationConfig, release: Toolchain, recipes: Sequence[Recipe]) -> None:
        from components.evaluation.builds import find_stock_clang, two_sides
        from components.evaluation.counters import find_counter

        two_sides(find_stock_clang(release, config.stock_clang), release, config.problem)
        find_counter()

    def build_projects(
        self, config: EvaluationConfig, recipes: Sequence[Recipe], release: Toolchain, work: Path
    ) -> dict[str, Any] | None:
        from components.evaluation.builds import find_stock_clang
        from components.evaluation.programs import compare_programs, summarize_programs
        from components.storage.cache import default_cache_dir

        stock = find_stock_clang(release, config.stock_clang)
        entries = compare_programs(recipes, stock, release, config.problem, work, default_cache_dir(), config.jobs)
        summary: dict[str, Any] | None = summarize_programs(entries)
        return summary

    def summarize(
        self, measured: ScoreMeasurements, config: EvaluationConfig, built: dict[str, Any] | None
    ) -> dict[str, Any]:
        from components.evaluation.score_metrics import summarize_scores

        return summarize_scores(measured, config.wanted_percent, config.seed, built)

    def agreement(self, measured: ScoreMeasurements, earlier: ScoreMeasurements) -> dict[str, Any]:
        return {}

    def write_csv(self, path: Path, measured: ScoreMeasurements) -> None:
        from components.evaluation.report_csv import write_score_csv

        write_score_csv(path, measured)

    def worst_cases(self, measured: ScoreMeasurements) -> list[dict[str, Any]]:
        from dataclasses import asdict

        from components.evaluation.score_page import worst_functions

        return [asdict(function) for function in worst_functions(measured)]

    def case_line(self, case: Mapping[str, Any]) -> str:
        return f"{case['name']} in {case['module']}: {case['baseline_score']:,.6g} to {case['policy_score']:,.6g}"

    def page(self, metrics: dict[str, Any], measured: ScoreMeasurements) -> tuple[str, dict[str, Any]]:
        from components.evaluation.score_page import score_page

        return score_page(metrics, measured)

    def extent(self, part: Mapping[str, Any]) -> str:
        return f"{part['functions']:,}"

    def cells(self, metrics: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
        def row(title: str, comparisons: Sequence[Mapping[str, Any]]) -> tuple[str, list[str]]:
            return title, [change(comparison["reduction_percent"], ("lower", "higher")) for comparison in comparisons]

        rows = [row("warmstart policy", [group["warmstart"] for group in groups])] if metrics.get("warmstart") else []
        rows.append(row(policy_title(metrics), groups))
        rows.append(("95% interval, policy", [interval(group["reduction_percent_ci95"]) for group in groups]))
        counts = [[group[f"functions_{way}"] for way in ("lower", "equal", "higher")] for group in groups]
        rows.append(("functions lower / equal / higher", [" / ".join(f"{n:,}" for n in three) for three in counts]))
        return rows

    def programs(self, metrics: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return metrics.get("programs")
