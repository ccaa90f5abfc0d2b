"""Programs of held-out projects run: how many instructions they execute, built by stock clang and with the policy."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from components.core.console import UserError, say
from components.core.formats.toolchain import Toolchain
from components.core.projects.recipe import Recipe
from components.evaluation.benchmarks.benchmark_runner import Run, make_inputs, run_benchmarks
from components.evaluation.benchmarks.counters import Counter, find_counter
from components.evaluation.comparison import reduction_percent
from components.evaluation.projects.build_variants import BuildVariant, build_variants, whole_build


@dataclass(frozen=True)
class Figures:
    """Of one program in one run. cycles: None where the machine does not count them. text_bytes: its machine code."""

    instructions: int
    cycles: int | None
    text_bytes: int


@dataclass(frozen=True)
class Program:
    """One benchmark of a project, with both builds of its program. counter: what counted, "perf" or "callgrind"."""

    project: str
    name: str
    program: str
    stock: Figures
    policy: Figures
    counter: str

    @property
    def change_percent(self) -> float:
        """By how much more instructions run under the policy; negative is better."""
        return 100.0 * (self.policy.instructions / self.stock.instructions - 1.0)

    def to_json(self) -> dict[str, Any]:
        """As it stands in metrics.json and programs.json."""
        return {
            "project": self.project,
            "name": self.name,
            "program": self.program,
            "stock": asdict(self.stock),
            "policy": asdict(self.policy),
            "change_percent": self.change_percent,
        }


def compare_programs(
    recipes: Sequence[Recipe], stock_clang: Path, release: Toolchain, problem: str, work: Path, cache: Path, jobs: int
) -> list[Program]:
    """Builds every project that has benchmarks twice, and runs each benchmark with both builds.

    As in binaries.py, the builds differ only in the compiler and its advisor's flags. `work` is a directory for them,
    empty again afterwards. Runs go beside each other, at most `jobs`, where that does not disturb the count.

    Raises:
        UserError: nothing counts here; a project cannot be fetched or built; a program fails or takes too long, or does
            not do the same under both compilers.
    """
    chosen = [recipe for recipe in recipes if recipe.benchmarks]
    if not chosen:
        return []
    sides = build_variants(stock_clang, release, problem)
    counter = find_counter()
    programs: list[Program] = []
    for recipe in chosen:
        folder = work / f"{recipe.name}.benchmarks"
        try:
            stock, policy = (_run(recipe, side, folder, counter, work, cache, jobs) for side in sides)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        programs += _pair(recipe, stock, policy, counter)
    return programs


def summarize_programs(programs: Sequence[Program]) -> dict[str, Any] | None:
    """All programs together, as it stands in metrics.json; None if there are none.

    reduction_percent: of the sum of their instructions, in which long runs count for more.
    geometric_mean_reduction_percent: of the geometric mean of the ratios, in which each run counts as much. Positive is
    better.
    """
    if not programs:
        return None
    stock = sum(program.stock.instructions for program in programs)
    policy = sum(program.policy.instructions for program in programs)
    logarithms = [math.log(program.policy.instructions / program.stock.instructions) for program in programs]
    return {
        "instructions": {"stock": stock, "policy": policy},
        "reduction_percent": reduction_percent(stock, policy),
        "geometric_mean_reduction_percent": 100.0 * -math.expm1(math.fsum(logarithms) / len(logarithms)),
        "counter": programs[0].counter,
        "programs": [program.to_json() for program in programs],
    }


def _run(
    recipe: Recipe, side: BuildVariant, folder: Path, counter: Counter, work: Path, cache: Path, jobs: int
) -> list[Run]:
    def fetched(source: Path) -> None:
        make_inputs(recipe, source, folder)

    with whole_build(recipe, side, work, cache, jobs, fetched) as (source, built):
        return run_benchmarks(recipe, built, source, folder, side.title, counter, jobs)


def _pair(recipe: Recipe, stock: Sequence[Run], policy: Sequence[Run], counter: Counter) -> list[Program]:
    programs = []
    for benchmark, before, after in zip(recipe.benchmarks, stock, policy, strict=True):
        if (before.stdout, before.output) != (after.stdout, after.output):
            what = "prints" if before.stdout != after.stdout else "writes to {output}"
            raise UserError(
                f"{recipe.name}: benchmark {benchmark.name} {what} something else when built by the release clang",
                "run it twice with the stock build: if that agrees, this is a miscompile; keep program and input",
            )
        program = Program(recipe.name, benchmark.name, before.program, _figures(before), _figures(after), counter.name)
        executed = f"{program.stock.instructions:,} instructions, {program.change_percent:+.2f}% with the policy"
        say(f"{recipe.name}, {benchmark.name}: {executed}")
        programs.append(program)
    return programs


def _figures(run: Run) -> Figures:
    return Figures(run.count.instructions, run.count.cycles, run.text_bytes)
