"""Compares the instructions that benchmarks of held-out projects execute, built without and with the policy."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from components.core.formats.toolchain import Toolchain
from components.core.projects.flags.build_variants import BuildVariant, build_variants, whole_build
from components.core.projects.recipe import Recipe
from components.evaluation.benchmarks.benchmark_runner import BenchmarkRun, make_inputs, run_benchmarks
from components.evaluation.benchmarks.counters import Counter, find_counter
from components.evaluation.metrics_types import BenchmarkEntry, BenchmarkSummary, InstructionTotals, RunMetrics
from components.platform.console import say
from components.platform.errors import UserError


@dataclass(frozen=True)
class BenchmarkComparison:
    """One benchmark of a project, run with both builds of its program. counter: "perf" or "callgrind"."""

    project: str
    name: str
    program: str
    stock: RunMetrics
    policy: RunMetrics
    counter: str

    @property
    def change_percent(self) -> float:
        """Change of the executed instructions under the policy, in percent; negative is better."""
        return 100.0 * (self.policy.instructions / self.stock.instructions - 1.0)

    def entry(self) -> BenchmarkEntry:
        """Return the entry of metrics.json and programs.json."""
        return BenchmarkEntry(
            project=self.project,
            name=self.name,
            program=self.program,
            stock=self.stock,
            policy=self.policy,
            change_percent=self.change_percent,
        )


def compare_programs(
    recipes: Sequence[Recipe], stock_clang: Path, release: Toolchain, problem: str, work: Path, cache: Path, jobs: int
) -> list[BenchmarkComparison]:
    """Build every project that has benchmarks twice, and run each benchmark with both builds.

    As in linked_binaries.py, the builds differ only in the compiler and its advisor's flags. `work` is their directory,
    empty afterwards. At most `jobs` runs are parallel, if that does not disturb the counts.

    Raises:
        UserError: this machine has no counter; a project cannot be fetched or built; a program fails, takes too long,
            or has different output under both compilers.
    """
    with_benchmarks = [recipe for recipe in recipes if recipe.benchmarks]
    if not with_benchmarks:
        return []
    variants = build_variants(stock_clang, release, problem)
    counter = find_counter()
    programs: list[BenchmarkComparison] = []
    for recipe in with_benchmarks:
        folder = work / f"{recipe.name}.benchmarks"
        try:
            stock, policy = (_run(recipe, variant, folder, counter, work, cache, jobs) for variant in variants)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        programs += _pair(recipe, stock, policy, counter)
    return programs


def summarize_programs(programs: Sequence[BenchmarkComparison]) -> BenchmarkSummary | None:
    """Return the entry of metrics.json for all benchmarks; None if there are none."""
    if not programs:
        return None
    stock = sum(program.stock.instructions for program in programs)
    policy = sum(program.policy.instructions for program in programs)
    logarithms = [math.log(program.policy.instructions / program.stock.instructions) for program in programs]
    return BenchmarkSummary(
        instructions=InstructionTotals(stock, policy),
        reduction_percent=100.0 * (1.0 - policy / stock),
        geometric_mean_reduction_percent=100.0 * -math.expm1(math.fsum(logarithms) / len(logarithms)),
        counter=programs[0].counter,
        programs=[program.entry() for program in programs],
    )


def _run(
    recipe: Recipe, variant: BuildVariant, folder: Path, counter: Counter, work: Path, cache: Path, jobs: int
) -> list[BenchmarkRun]:
    def prepare(source: Path) -> None:
        make_inputs(recipe, source, folder)

    with whole_build(recipe, variant, work, cache, jobs, prepare) as (source, built):
        return run_benchmarks(recipe, built, source, folder, variant.title, counter, jobs)


def _pair(
    recipe: Recipe, stock: Sequence[BenchmarkRun], policy: Sequence[BenchmarkRun], counter: Counter
) -> list[BenchmarkComparison]:
    programs = []
    for benchmark, before, after in zip(recipe.benchmarks, stock, policy, strict=True):
        if (before.stdout, before.output) != (after.stdout, after.output):
            action = "prints" if before.stdout != after.stdout else "writes to {output}"
            raise UserError(
                f"{recipe.name}: benchmark {benchmark.name} {action} something else when built by the release clang",
                "run it twice with the stock build: if both runs agree, this is a miscompile; keep program and input",
            )
        program = BenchmarkComparison(
            recipe.name, benchmark.name, before.program, _figures(before), _figures(after), counter.name
        )
        executed = f"{program.stock.instructions:,} instructions, {program.change_percent:+.2f}% with the policy"
        say(f"{recipe.name}, {benchmark.name}: {executed}")
        programs.append(program)
    return programs


def _figures(run: BenchmarkRun) -> RunMetrics:
    return RunMetrics(run.count.instructions, run.count.cycles, run.text_bytes)
