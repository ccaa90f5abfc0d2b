"""Judges by text size in bytes: what counts is the sum over the modules."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from components import problems
from components.console import UserError, say
from components.evaluation.words import LANGUAGE_TITLES, SMALLER, change, policy_title

if TYPE_CHECKING:
    from components.evaluation.config import EvaluationConfig
    from components.evaluation.measurements import Measurements
    from components.evaluation.variants import Variant
    from components.formats.corpus import Module
    from components.formats.toolchain import Toolchain
    from components.projects.recipe import Recipe
    from components.workers.pool import WorkerPool

Cell = tuple[int, float | None]
"""Bytes, and the reduction in percent against the heuristic."""


class Sizes:
    """See Judge. What this imports within its methods is heavy: numpy, matplotlib, jinja2."""

    figures = frozenset({"modules", "baseline_bytes", "policy_bytes", "groups"})
    comparative = SMALLER
    title = "Text size of the held-out modules"
    cases, judged = "modules", "text"
    worst, worst_key, none_worse = "Modules that grew most", "worst_modules", "None grew."
    reward = "% smaller than -Oz"
    listed, of_projects = "binaries", "linked binaries"
    swept = True

    def plan(self, config: EvaluationConfig, training: Toolchain, release: Toolchain | None) -> tuple[Variant, ...]:
        from components.evaluation.variants import plan

        return plan(config, training, release)

    def compiled_by(self, release: Toolchain | None) -> str:
        return "release" if release else "training"

    def measure(
        self, pool: WorkerPool, config: EvaluationConfig, variants: Sequence[Variant], modules: Sequence[Module],
        heldout_projects: Collection[str], earlier: Measurements | None,
    ) -> Measurements:  # fmt: skip
        from components.evaluation.measure import measure

        return measure(pool, config, variants, modules, heldout_projects, earlier)

    def require_tools(self, config: EvaluationConfig, release: Toolchain, recipes: Sequence[Recipe]) -> None:
        from components.evaluation.builds import find_stock_clang, two_sides
        from components.evaluation.counters import find_counter

        two_sides(find_stock_clang(release, config.stock_clang), release, config.problem)
        if config.max_slowdown_percent is not None:
            if not any(recipe.benchmarks for recipe in recipes):
                raise UserError(
                    "no held-out project has benchmarks, so that nobody can say how much slower its programs become",
                    "add `benchmarks` to the recipe of one, or leave --max-slowdown-percent out",
                )
            find_counter()

    def build_projects(
        self, config: EvaluationConfig, recipes: Sequence[Recipe], release: Toolchain, work: Path
    ) -> dict[str, Any]:
        from components.evaluation.binaries import compare_projects, comparison_json
        from components.evaluation.builds import find_stock_clang
        from components.evaluation.programs import compare_programs, summarize_programs
        from components.storage.cache import default_cache_dir

        stock = find_stock_clang(release, config.stock_clang)
        cache, variants = default_cache_dir(), config.link_variants
        compared = comparison_json(
            compare_projects(recipes, stock, release, config.problem, work, cache, config.jobs, variants)
        )
        try:
            programs = compare_programs(recipes, stock, release, config.problem, work, cache, config.jobs)
        except UserError as error:
            if config.max_slowdown_percent is not None:
                raise
            # Sizes do without; what was trained and measured is not to be lost over a benchmark.
            say(f"what programs execute is not told: {error.problem}")
            programs = []
        return {**compared, "programs": summarize_programs(programs)}

    def summarize(
        self, measured: Measurements, config: EvaluationConfig, built: dict[str, Any] | None
    ) -> dict[str, Any]:
        from components.evaluation.metrics import judge_whole_programs, summarize

        whole = built or {"binaries": [], "linked": {}, "programs": None}
        metrics = summarize(measured, config.wanted_percent, config.seed) | whole
        judge_whole_programs(metrics, whole["linked"], whole["programs"], config.max_slowdown_percent)
        return metrics

    def agreement(self, measured: Measurements, earlier: Measurements) -> dict[str, Any]:
        from components.evaluation.measurements import POLICY

        return {"as_under_the_training_clang": int((measured.sizes[POLICY] == earlier.sizes_of(measured)).sum())}

    def write_csv(self, path: Path, measured: Measurements) -> None:
        from components.evaluation.report_csv import write_report_csv

        write_report_csv(path, measured)

    def worst_cases(self, measured: Measurements) -> list[dict[str, Any]]:
        from dataclasses import asdict

        from components.evaluation.size_page import worst_modules

        return [asdict(module) for module in worst_modules(measured)]

    def case_line(self, case: Mapping[str, Any]) -> str:
        return f"{case['name']}: {case['baseline_bytes']:,} to {case['policy_bytes']:,} bytes"

    def page(self, metrics: dict[str, Any], measured: Measurements) -> tuple[str, dict[str, Any]]:
        from components.evaluation.size_page import size_page

        return size_page(metrics, measured)

    def extent(self, part: Mapping[str, Any]) -> str:
        return f"{part['modules']}"

    def cells(self, metrics: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
        rows = size_rows(metrics, groups) + part_rows(metrics, groups)
        return [(title, [_cell(*cell) for cell in cells]) for title, cells in rows]

    def programs(self, metrics: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return metrics.get("programs")


def size_rows(metrics: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Cell]]]:
    """The table as data: title, then a cell for each of `groups`."""
    level = problems.get(metrics.get("problem", "inlining")).optimization
    table: list[tuple[str, list[Cell]]] = [(f"stock {level}", [(group["baseline_bytes"], None) for group in groups])]
    best = metrics.get("best_threshold")
    if best is not None:
        of_best = [_pair(group["sweep"][str(best)]) for group in groups]
        table.append((f"{level}, best -inline-threshold ({best})", of_best))
    if metrics.get("warmstart"):
        table.append(("warmstart policy", [_pair(group["warmstart"]) for group in groups]))
    table.append((policy_title(metrics), [_pair(group) for group in groups]))
    return table


def part_rows(metrics: Mapping[str, Any], groups: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[Cell]]]:
    """The policy's sizes by language and by section, as `size_rows`; none of an evaluation of an earlier version."""
    table = [
        (f"policy, {LANGUAGE_TITLES[language]}", [_pair(group["languages"][language]) for group in groups])
        for language in metrics.get("languages", {})
    ]
    return table + [
        (f"policy, {section}", [_pair(group["sections"][section]) for group in groups])
        for section in metrics.get("sections", {})
    ]


def _pair(comparison: Mapping[str, Any]) -> Cell:
    return comparison["policy_bytes"], comparison["reduction_percent"]


def _cell(size_bytes: int, reduction_percent: float | None) -> str:
    if reduction_percent is None:
        return f"{size_bytes:,}" if size_bytes else "–"
    return f"{size_bytes:,}  {change(reduction_percent)}"
