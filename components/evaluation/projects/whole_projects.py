"""Compares whole held-out projects, or the user's own build: their linked binaries, and the instructions that their
programs execute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from components.core.compiler.clang_programs import llvm_binutils
from components.core.formats.corpus import Corpus
from components.core.formats.links import LINKS, BuildLinks, read_links
from components.core.formats.toolchain import Toolchain
from components.core.objectives import Objective
from components.core.projects.flags.build_variants import build_variants, find_stock_clang
from components.core.projects.flags.builds import make_project
from components.core.projects.flags.request import RowsRequest
from components.core.projects.recipe import Recipe
from components.core.projects.speed.counters import find_counter
from components.evaluation.benchmarks.benchmark_comparison import compare_programs, summarize_programs
from components.evaluation.benchmarks.own_benchmark import compare_own_benchmark
from components.evaluation.config import EvaluationConfig
from components.evaluation.metrics_types import BinariesComparison, OwnBuild, WholeProjects
from components.evaluation.projects.linked_binaries import compare_projects, summarize_binaries
from components.evaluation.projects.own_build import relink
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.cache import default_cache_dir


def require_tools(
    objective: Objective, config: EvaluationConfig, release: Toolchain, recipes: Sequence[Recipe]
) -> None:
    """Raise UserError if compilers, benchmarks or a counter that `compare_whole_projects` needs are missing."""
    stock = find_stock_clang(release, config.stock_clang)
    build_variants(stock, release, config.problem)
    if config.flag_rows:
        _rows_request(config, recipes).check(release, ("stock", "policy"))
    needs_benchmarks = {
        "--max-slowdown-percent": config.max_slowdown_percent is not None,
        "--time-repeats": config.time_repeats > 0,
    }
    option = next((option for option, given in needs_benchmarks.items() if given), None)
    if option and not any(recipe.benchmarks for recipe in recipes):
        raise UserError(
            f"no held-out project has benchmarks, whose programs {option} is about",
            f"add `benchmarks` to the recipe of one, or leave {option} out",
        )
    if _needs_programs(objective, config):
        find_counter()


def compare_whole_projects(
    objective: Objective, config: EvaluationConfig, recipes: Sequence[Recipe], release: Toolchain, work: Path
) -> WholeProjects:
    """Build whole held-out projects in `work`, with stock clang and with the release clang, and compare them.

    Args:
        recipes: recipes that all have the objective's `recipe_field`.

    Returns:
        The executed instructions and, for size, the linked binaries.
    """
    stock, cache = find_stock_clang(release, config.stock_clang), default_cache_dir()
    binaries = BinariesComparison()
    if objective.recipe_field == "binaries":
        binaries = summarize_binaries(
            compare_projects(recipes, stock, release, config.problem, work, cache, config.jobs, config.link_variants)
        )
    try:
        programs = compare_programs(
            recipes, stock, release, config.problem, work, cache, config.jobs, config.time_repeats
        )
    except UserError as error:
        if _needs_programs(objective, config):
            raise
        # The verdict does not need programs: a failing benchmark must not discard a training and its measurements.
        say(f"executed instructions are not measured: {error.problem}")
        programs = []
    flags = _rows_request(config, recipes).compare(release, work / "flags") if config.flag_rows else None
    return WholeProjects(binaries, summarize_programs(programs), flags)


def require_own_benchmark(objective: Objective, config: EvaluationConfig) -> None:
    """Raise UserError if the verdict needs the user's benchmark, and this machine cannot count its instructions."""
    if config.benchmark and _needs_programs(objective, config):
        find_counter()


def will_judge_own_build(config: EvaluationConfig, corpus: Corpus) -> bool:
    """Return whether the report on a release clang will link the programs of the build that the corpus comes from."""
    links = read_links(corpus.directory) if config.recipe is None and config.relink == "yes" else None
    return links is not None and bool(links.links)


def compare_own_build(
    objective: Objective, config: EvaluationConfig, corpus: Corpus, release: Toolchain, work: Path
) -> WholeProjects:
    """Link the programs of the build that the corpus comes from, with stock clang and with the release clang.

    Returns:
        For size, the linked binaries, and how they were linked or what is missing; executed instructions if there is a
        benchmark.

    Raises:
        UserError: the benchmark that limits a slowdown cannot be run, or a compiler is missing.
    """
    sizes = objective.recipe_field == "binaries"
    if config.relink == "no" or not (config.benchmark or sizes):
        return WholeProjects(BinariesComparison())
    links = read_links(corpus.directory)
    if links is None:
        problem = _why_without_links(corpus)
        if not (problem or config.benchmark):
            return WholeProjects(BinariesComparison())
        links = BuildLinks(
            "", "none", (), {}, problem or f"the corpus in {corpus.directory} has no {LINKS}: extract it again"
        )
    if not links.links:
        _skip_benchmark(objective, config, UserError(links.problem, "leave --benchmark out"))
        return WholeProjects(BinariesComparison(), own_build=OwnBuild(source=links.source, need=links.problem))
    try:
        relinked = relink(links, corpus, config, release, work)
    except UserError as error:
        # The figures of modules must not be lost because this machine has no stock clang.
        _skip_benchmark(objective, config, error)
        return WholeProjects(BinariesComparison(), own_build=OwnBuild(source=links.source, need=error.problem))
    programs = None
    if config.benchmark:
        try:
            strip = llvm_binutils(find_stock_clang(release, config.stock_clang))["strip"]
            build, repeats = Path(links.tree), config.time_repeats
            ran = compare_own_benchmark(config.benchmark, relinked, build, strip, work, repeats)
            programs = summarize_programs([ran])
        except UserError as error:
            _skip_benchmark(objective, config, error)
    binaries = summarize_binaries(relinked.binaries) if sizes else BinariesComparison()
    return WholeProjects(binaries, programs, own_build=relinked.summary)


def _why_without_links(corpus: Corpus) -> str:
    """Return why a corpus of an LTO build has no links.json; "" for other corpora, whose builds may not link."""
    if any(module.thinlto_index is not None for module in corpus):
        return (
            "the corpus is of ThinLTO's backends, but the release clang decides in the compile of each file, too; for "
            "linked files, build with the compilers of mlgo corpus compilers and train by --compile-commands: what has "
            "-flto=thin is then linked with it"
        )
    if any(module.is_program() for module in corpus):
        return (
            "each module of the corpus is a linked program already, without what its libraries add; for linked files, "
            "compare two finished builds with mlgo evaluation compare-builds"
        )
    return ""


def _skip_benchmark(objective: Objective, config: EvaluationConfig, error: UserError) -> None:
    """Say why the user's benchmark is not run. UserError if the verdict needs it."""
    if config.benchmark and _needs_programs(objective, config):
        raise error
    if config.benchmark:
        say(f"executed instructions are not measured: {error.problem}")


def _rows_request(config: EvaluationConfig, recipes: Sequence[Recipe]) -> RowsRequest:
    """Return the programs of the recipes under the rows of flags that the configuration names.

    Raises:
        UserError: no recipe names a program, so the verdict cannot depend on one.
    """
    projects = tuple(project for recipe in recipes if (project := make_project(recipe)) is not None)
    if not projects:
        raise UserError(
            "no held-out project names a program, so none can be built under rows of flags",
            "list programs as `binaries` in the recipe of one, or leave --flag-rows out",
        )
    return RowsRequest(projects, config.jobs, config.stock_clang, config.flag_rows)


def _needs_programs(objective: Objective, config: EvaluationConfig) -> bool:
    return objective.programs_decide or config.max_slowdown_percent is not None
