"""Compares the instructions that benchmarks of held-out projects execute, and the time that they take, built without
and with the policy."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from msgspec import UNSET, UnsetType

from components.core.formats.toolchain import Toolchain
from components.core.projects.flags.build_variants import build_variants, whole_build
from components.core.projects.recipe import Recipe
from components.core.projects.speed.counters import Counter, find_counter
from components.core.projects.speed.stopwatch import Times, compare_times, mean_time_change
from components.core.projects.speed.types import TimeChange
from components.evaluation.benchmarks.benchmark_runner import BenchmarkRun, make_inputs, run_benchmarks, time_benchmarks
from components.evaluation.metrics_types import BenchmarkEntry, BenchmarkSummary, InstructionTotals, RunMetrics
from components.platform.console import Progress, say
from components.platform.errors import UserError


@dataclass(frozen=True)
class BenchmarkComparison:
    """One benchmark of a project, run with both builds of its program.

    counter: "perf" or "callgrind". stock_s, policy_s: processor time of each timed run in seconds, in pairs.
    """

    project: str
    name: str
    program: str
    stock: RunMetrics
    policy: RunMetrics
    counter: str
    stock_s: tuple[float, ...] = ()
    policy_s: tuple[float, ...] = ()

    @property
    def change_percent(self) -> float:
        """Change of the executed instructions under the policy, in percent; negative is better."""
        return 100.0 * (self.policy.instructions / self.stock.instructions - 1.0)

    def entry(self) -> BenchmarkEntry:
        return BenchmarkEntry(
            project=self.project,
            name=self.name,
            program=self.program,
            stock=self.stock,
            policy=self.policy,
            change_percent=self.change_percent,
            time=self.time,
        )

    @property
    def time(self) -> TimeChange | UnsetType:
        """The change of its processor time; UNSET if it was not taken."""
        return compare_times(*_times([self]))[0] if self.stock_s else UNSET


def compare_programs(
    recipes: Sequence[Recipe],
    stock_clang: Path,
    release: Toolchain,
    problem: str,
    work: Path,
    cache: Path,
    jobs: int,
    time_repeats: int = 0,
) -> list[BenchmarkComparison]:
    """Build every project that has benchmarks twice, and run each benchmark with both builds.

    As in linked_binaries.py, the builds differ only in the compiler and its advisor's flags. `work` is their directory,
    empty afterwards. At most `jobs` runs are parallel, if that does not disturb the counts. With `time_repeats`, each
    benchmark then runs that many times with each build alternately, and alone, for its processor time.

    Raises:
        UserError: this machine has no counter; a project cannot be fetched or built; a program fails, takes too long,
            or has different output under both compilers.
    """
    with_benchmarks = [recipe for recipe in recipes if recipe.benchmarks]
    if not with_benchmarks:
        return []
    stock, policy = build_variants(stock_clang, release, problem)
    counter = find_counter()
    programs: list[BenchmarkComparison] = []
    for recipe in with_benchmarks:
        folder = work / f"{recipe.name}.benchmarks"
        kept = work / f"{recipe.name}.stock"
        root = work / recipe.name  # of both builds, see whole_build
        prepare = partial(make_inputs, recipe, folder=folder)
        try:
            with whole_build(recipe, stock, work, cache, jobs, prepare) as (source, built):
                before = run_benchmarks(recipe, built, source, folder, stock.title, counter, jobs)
                if time_repeats:
                    root.rename(kept)
            with whole_build(recipe, policy, work, cache, jobs, prepare) as (source, built):
                after = run_benchmarks(recipe, built, source, folder, policy.title, counter, jobs)
                _require_same_output(recipe, before, after)
                time = partial(time_benchmarks, recipe, built, source, folder)
                times = _time(recipe, time, root, kept, (stock.title, policy.title), time_repeats)
            programs += _pair(recipe, before, after, times, counter)
        finally:
            for directory in (folder, kept, work / f"{recipe.name}.aside"):
                shutil.rmtree(directory, ignore_errors=True)
    return programs


def summarize_programs(programs: Sequence[BenchmarkComparison]) -> BenchmarkSummary | None:
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
        time=mean_time_change(*_times(programs)) if programs[0].stock_s else UNSET,
    )


def _time(
    recipe: Recipe, time: Callable[[str], list[float]], root: Path, kept: Path, titles: tuple[str, str], repeats: int
) -> Times:
    """Return the processor times of both builds, float64 [2, repeats, benchmarks], stock clang's first.

    `time` is `time_benchmarks` without its last argument, a title. `root` is the whole directory of the release clang's
    build, `kept` that of stock clang's, which then was in the same place. Both run there, because the length of a path
    moves a program's stack, and so changes its speed (Mytkowicz et al. 2009, doi:10.1145/1508244.1508275).
    """
    times = np.zeros((2, repeats, len(recipe.benchmarks)))
    if not repeats:
        return times
    with Progress(f"timing {recipe.name}", 2 * repeats) as progress:
        for repeat in range(repeats):
            for build in (0, 1) if repeat % 2 else (1, 0):
                if build == 0:
                    with _exchanged(kept, root):
                        times[0, repeat] = time(titles[0])
                else:
                    times[1, repeat] = time(titles[1])
                progress.advance()
    return times


@contextmanager
def _exchanged(first: Path, second: Path) -> Iterator[None]:
    aside = second.with_name(f"{second.name}.aside")
    second.rename(aside)
    try:
        first.rename(second)
        try:
            yield
        finally:
            second.rename(first)
    finally:
        aside.rename(second)


def _require_same_output(recipe: Recipe, stock: Sequence[BenchmarkRun], policy: Sequence[BenchmarkRun]) -> None:
    for benchmark, before, after in zip(recipe.benchmarks, stock, policy, strict=True):
        if (before.stdout, before.output) != (after.stdout, after.output):
            action = "prints" if before.stdout != after.stdout else "writes to {output}"
            raise UserError(
                f"{recipe.name}: benchmark {benchmark.name} {action} something else when built by the release clang",
                "run it twice with the stock build: if both runs agree, this is a miscompile; keep program and input",
            )


def _pair(
    recipe: Recipe, stock: Sequence[BenchmarkRun], policy: Sequence[BenchmarkRun], times: Times, counter: Counter
) -> list[BenchmarkComparison]:
    programs = []
    for number, benchmark in enumerate(recipe.benchmarks):
        before, after = stock[number], policy[number]
        program = BenchmarkComparison(
            recipe.name,
            benchmark.name,
            before.program,
            _figures(before),
            _figures(after),
            counter.name,
            *(tuple(map(float, times[build, :, number])) for build in (0, 1)),
        )
        executed = f"{program.stock.instructions:,} instructions, {program.change_percent:+.2f}% with the policy"
        time = "" if program.time is UNSET else f"; time {program.time.change_percent:+.2f}%"
        say(f"{recipe.name}, {benchmark.name}: {executed}{time}")
        programs.append(program)
    return programs


def _figures(run: BenchmarkRun) -> RunMetrics:
    return RunMetrics(run.count.instructions, run.count.cycles, run.text_bytes)


def _times(programs: Sequence[BenchmarkComparison]) -> tuple[Times, Times]:
    """Return the times with stock clang and with the policy, float64 [repeats, programs]."""
    return np.array([program.stock_s for program in programs]).T, np.array([program.policy_s for program in programs]).T
