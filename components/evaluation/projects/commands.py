"""The commands that compare whole projects: compare-binaries, compare-programs and flags, which build them with both
compilers, and compare-builds, which compares two builds."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from components.core import problems
from components.core.projects.flags.link_variants import LINK_VARIANTS
from components.core.projects.flags.options import PROCESSORS, program_options, select_recipes
from components.core.projects.option import RECIPE
from components.evaluation.metrics_types import encode_json
from components.platform.console import say
from components.platform.console.number_types import JOBS, REDUCTION_PERCENT, REPEATS
from components.platform.errors import UserError
from components.platform.storage.kinds import Kind
from components.platform.storage.object_storage.fetch import fetch
from components.platform.storage.options import ARTIFACT, OUTPUT, PROGRAM, TREE, LocationType
from components.platform.storage.uri import display_path

if TYPE_CHECKING:
    from components.core.projects.flags.request import RowsRequest
    from components.core.projects.recipe import Recipe

EXIT_NOT_BETTER = 3
_BUILD = LocationType("dir|uri", fetch)
"""A build tree, which changes between two comparisons, or an artifact."""
_HIDDEN = LINK_VARIANTS["hidden"]


LINK_VARIANT = click.option(
    "--link-variant",
    "link_variants",
    type=click.Choice(list(LINK_VARIANTS)),
    multiple=True,
    default=tuple(LINK_VARIANTS),
    show_default=True,
    help="How whole projects are compiled and linked (repeatable): by their own build, or programs with "
    f"{' '.join(_HIDDEN.compile_flags + _HIDDEN.link_flags)}.",
)

TIME_REPEATS = click.option(
    "--time-repeats",
    type=REPEATS,
    default=0,
    show_default=True,
    metavar="N",
    help="Also run each benchmark N times with each build, alternately and alone, and compare processor time.",
)


def _options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option(
            "--project", "projects", multiple=True, help="Only this project (repeatable).  [default: held-out ones]"
        ),
        click.option("--stock-clang", type=PROGRAM, help="Clang of the baseline.  [default: the installed clang-N]"),
        click.option("--release-toolchain", type=ARTIFACT, required=True, help="Release clang that embeds the policy."),
        click.option("--recipe", type=RECIPE, required=True, help="Recipe of one project or of a set."),
    ):
        command = option(command)
    return command


@click.command("compare-binaries")
@_options
@click.option("--output", type=OUTPUT, required=True, help="Directory for binaries.json.")
@click.option("--problem", default="inlining", show_default=True, help="Optimization problem.")
@click.option("--jobs", type=JOBS, default=PROCESSORS, help="Parallel compiles.  [default: processors]")
@click.option("--plan", type=ARTIFACT, help="Plan of `mlgo tune`: also build with the release clang and this plan.")
@LINK_VARIANT
def compare_binaries(
    recipe: Path,
    projects: tuple[str, ...],
    problem: str,
    link_variants: tuple[str, ...],
    plan: Path | None,
    **options: Any,
) -> None:
    """Build whole projects with stock clang and with the release clang, and compare the linked programs and shared
    libraries section by section: in the projects' own build, and linked so that the linker drops every function that
    is not called. With --plan, the release clang builds them twice, with its policy alone and with the plan.

    Without --project: the projects that the recipes hold out, or all if they hold out none.

    \b
    Example:
      mlgo evaluation compare-binaries --recipe components/core/projects/recipes/demo.yaml \\
          --release-toolchain runs/demo/release --project snappy --output runs/demo/binaries
    """
    from components.core.compiler.inline_plan import require_plan
    from components.evaluation.projects.linked_binaries import compare_projects, summarize_binaries
    from components.evaluation.report.terminal_report import print_binaries

    plan_file = require_plan(plan) if plan else None
    compare = partial(compare_projects, link_variants=link_variants, plan=plan_file)
    recipes = select_recipes(recipe, projects)
    kind: Kind = "comparison of binaries"
    content = _compare_and_publish(
        compare, summarize_binaries, recipes, "binaries.json", kind, problem=problem, **options
    )
    subject = "bytes with the policy, without and with the plan" if plan else "bytes with the policy"
    print_binaries(content, f"{subject}, change against stock {problems.get(problem).optimization}")


@click.command("compare-builds")
@click.argument("old", type=_BUILD)
@click.argument("new", type=_BUILD, required=False)
@click.option(
    "--binary",
    "binaries",
    multiple=True,
    metavar="GLOB",
    help="Compare only paths that match (repeatable).  [default: every program and library]",
)
@click.option(
    "--output",
    type=OUTPUT,
    help="Directory for binaries.json and for build.json, the sizes of NEW, or of the only build: a later "
    "compare-builds takes the directory as OLD.  [default: nothing is written]",
)
@click.option(
    "--functions",
    "functions",
    type=click.IntRange(0, 10_000),
    default=10,
    show_default=True,
    metavar="N",
    help="Show the N functions that grew most, and the N that shrank most, from binaries that are not stripped.",
)
@click.option(
    "--run",
    type=TREE,
    metavar="DIR",
    help="Output of the `mlgo run` for inlining whose clang made NEW: also show the decisions behind the largest "
    "changes, measured with its training clang and corpus.",
)
@click.option(
    "--min-reduction-percent",
    type=REDUCTION_PERCENT,
    help=f"Exit status {EXIT_NOT_BETTER} if the linked programs and libraries of NEW are not this much smaller.",
)
def compare_builds(
    old: Path,
    new: Path | None,
    binaries: tuple[str, ...],
    output: Path | None,
    functions: int,
    run: Path | None,
    min_reduction_percent: float | None,
) -> int:
    """Compare two builds of the same code, such as one by your compiler and one by a release clang: the programs and
    libraries with the same paths, section by section.

    A build is its directory, an output of `mlgo shrink`, or an --output of this command, which has the sizes of the
    build that was measured, so that its tree need not be kept. One build alone, with --output, is measured for later.
    OLD and NEW may also be two binaries.

    Files in only one build, damaged files and files for another machine are named and left out. Nothing is built and
    nothing in the trees is changed; debug data does not count.

    \b
    Example: a project with CMake, built by clang 19 at -Oz, and by a release clang at the same level
      mlgo corpus compilers --output oz
      cmake -S . -B build -DCMAKE_BUILD_TYPE=Release \\
        -DCMAKE_C_COMPILER=$PWD/oz/clang -DCMAKE_CXX_COMPILER=$PWD/oz/clang++ && cmake --build build
      mlgo corpus compilers --release runs/mine/release --output mlgo
      cmake -S . -B build-mlgo -DCMAKE_BUILD_TYPE=Release \\
        -DCMAKE_C_COMPILER=$PWD/mlgo/clang -DCMAKE_CXX_COMPILER=$PWD/mlgo/clang++ && cmake --build build-mlgo
      mlgo evaluation compare-builds build build-mlgo --run runs/mine

    \b
    Example: the same in one build directory
      mlgo evaluation compare-builds build --output before
      make clean && make CC=$PWD/mlgo/clang
      mlgo evaluation compare-builds before build
    """
    from components.evaluation.changed_functions import explain_builds
    from components.evaluation.projects.build_trees import VARIANT, compare_trees
    from components.evaluation.projects.function_changes import function_changes
    from components.evaluation.projects.linked_binaries import summarize_binaries
    from components.evaluation.projects.measured_builds import measure_files, open_build, write_measurement
    from components.evaluation.report.terminal_report import print_binaries, print_functions
    from components.platform.storage import publish

    kind: Kind = "comparison of binaries"
    if new is None:
        if output is None or run is not None or min_reduction_percent is not None:
            raise UserError(
                f"{old} is the only build, so there is nothing to compare it with",
                "pass a second one, or only --output DIR, to keep the sizes of this one for later",
            )
        build = open_build(old, binaries)
        if not (measured := measure_files(build, build.files)):
            raise UserError(f"{old} has no program or library", "pass the directory of a finished build")
        with publish(output, kind) as directory:
            write_measurement(build.name, measured, directory)
        say(f"measured {len(measured)} files of {old}: mlgo evaluation compare-builds {display_path(output)} NEW")
        return 0
    compared = compare_trees(old, new, binaries)
    content = summarize_binaries(compared.binaries)
    for title, names in (("in the old build only", compared.only_old), ("in the new build only", compared.only_new)):
        if names:
            say(f"left out, {title}: {', '.join(names)}")
    for tree, (number, size_bytes) in zip((old, new), compared.bitcode, strict=True):
        if number:
            say(
                f"{number} linked files of {tree} contain {size_bytes:,} bytes of embedded bitcode, which do not "
                "count: build with the compilers of mlgo corpus compilers, which leave it out of linked files, or "
                "remove it before you ship them (llvm-objcopy --remove-section=.llvmbc --remove-section=.llvmcmd)"
            )
    pairs = ((name, compared.before[name].functions, compared.after[name].functions) for name in compared.before)
    changes = function_changes(pairs, functions) if functions else []
    if changes and run is not None:
        explain_builds(changes, run)
    if changes:
        print_functions(changes)
    print_binaries(content, f"bytes of {new}, change against {old}")
    if output is not None:
        left_out = {"only_old": compared.only_old, "only_new": compared.only_new, "different": compared.different}
        with publish(output, kind) as directory:
            content.functions = changes
            document = {**msgspec.structs.asdict(content), **left_out}
            (directory / "binaries.json").write_text(encode_json(document), encoding="utf-8")
            measured = compared.after | measure_files(compared.new, compared.only_new)
            write_measurement(compared.new.name, measured, directory)
    if min_reduction_percent is None:
        return 0
    if not content.linked:
        raise UserError("no program or shared library is in both builds", "leave --min-reduction-percent out")
    linked = content.linked[VARIANT]["all"].reduction_percent
    if linked is not None and linked >= min_reduction_percent:
        return 0
    reduction = "undefined" if linked is None else f"{linked:.2f}%"
    say(f"not enough: the reduction of linked files is {reduction}; at least {min_reduction_percent:g}% is required")
    return EXIT_NOT_BETTER


@click.command("compare-programs")
@_options
@click.option("--output", type=OUTPUT, required=True, help="Directory for programs.json.")
@click.option("--problem", default="regalloc", show_default=True, help="Optimization problem.")
@click.option(
    "--jobs",
    type=JOBS,
    default=PROCESSORS,
    help="Parallel compiles, and parallel programs under valgrind.  [default: processors]",
)
@TIME_REPEATS
def compare_programs(recipe: Path, projects: tuple[str, ...], time_repeats: int, **options: Any) -> None:
    """Build whole projects with stock clang and with the release clang, run the benchmarks of their recipes, and
    compare the executed instructions, counted by perf if this machine supports it, otherwise by valgrind; with
    --time-repeats also the processor time, with its 95% interval.

    Without --project: the projects that the recipes hold out, or all if they hold out none.

    \b
    Example:
      mlgo evaluation compare-programs --recipe codecs \\
          --release-toolchain runs/regalloc/release --time-repeats 20 --output runs/regalloc/programs
    """
    from components.evaluation.benchmarks import benchmark_comparison
    from components.evaluation.report.terminal_report import print_programs

    recipes = select_recipes(recipe, projects)
    if not any(project.benchmarks for project in recipes):
        raise UserError(
            f"none of {', '.join(project.name for project in recipes)} has a benchmark to run",
            "add `benchmarks` to the recipe, or choose other projects with --project",
        )
    compare = partial(benchmark_comparison.compare_programs, time_repeats=time_repeats)
    summarize = benchmark_comparison.summarize_programs
    kind: Kind = "comparison of programs"
    print_programs(_compare_and_publish(compare, summarize, recipes, "programs.json", kind, **options))


def _compare_and_publish(
    compare: Callable[..., Sequence[Any]],
    summarize: Callable[[Sequence[Any]], Any],
    recipes: Sequence[Recipe],
    file_name: str,
    kind: Kind,
    *,
    release_toolchain: Path,
    output: Path,
    stock_clang: Path | None,
    problem: str,
    jobs: int,
) -> Any:
    """Compare the projects, publish the result of `summarize` as `output`/`file_name`, and return it."""
    from components.core.formats.toolchain import load_toolchain
    from components.core.projects.flags.build_variants import find_stock_clang
    from components.platform.storage import publish
    from components.platform.storage.cache import default_cache_dir

    release = load_toolchain(release_toolchain).require_mode("release")
    stock = find_stock_clang(release, stock_clang)
    with publish(output, kind) as directory:
        work = directory / "build"
        try:
            content = summarize(compare(recipes, stock, release, problem, work, default_cache_dir(), jobs))
        finally:
            shutil.rmtree(work, ignore_errors=True)
        (directory / file_name).write_text(encode_json(content), encoding="utf-8")
    return content


@click.command("flags")
@program_options()
@click.option("--release-toolchain", type=ARTIFACT, required=True, help="Release clang that embeds the policy.")
@click.option("--plan", type=ARTIFACT, help="Plan of `mlgo tune`: also build with the release clang and this plan.")
@click.option(
    "--other-compilers/--no-other-compilers",
    default=True,
    show_default=True,
    help="Also build by the other compilers that you have, for size and with LTO: gcc, and a newer clang.",
)
@click.option("--output", type=OUTPUT, required=True, help="Directory for flags.csv and flags.json.")
def flags(
    release_toolchain: Path, plan: Path | None, other_compilers: bool, output: Path, request: RowsRequest | None
) -> None:
    """Build programs under rows of flags that make them smaller, with stock clang, the release clang and your other
    compilers, and show what each row gives, the best row of stock clang, the best of all, and the line to put into the
    build.

    \b
    Each row adds to the one before it, until LTO:
      default                 your build at -Oz
      hidden                  -fvisibility=hidden, sections, --gc-sections
      icf-safe, icf-all       the same and lld's identical code folding
      relr, layout            packed relocations, less padding, one hash table, no build ID
      no-unwind-tables        with --allow
      no-pie                  with --allow
      outliner                LLVM's machine outliner
      thinlto, lto            link-time optimization by LLVM's pipelines, full LTO also with the outliner
      program                 full LTO by the release clang's own pipeline, where it has one
      smallest, program-smallest   the smallest of several variants, where it has -mlgo-keep-smaller
      *-experimental          with --experimental: the smallest of more variants
      gcc-Os, gcc-Oz          your gcc with LTO, --gc-sections and the flags above that it has
      newest                  full LTO by the newest clang that is installed, if it is newer than the release clang

    Sizes are those of the file after llvm-strip. A row that does not build is listed with the reason.

    \b
    Example: your own build, and the programs of a recipe
      mlgo evaluation flags --build 'cmake -S . -B build && cmake --build build' --source . --exclude build \\
          --program build/app --release-toolchain build/clang --output runs/flags
      mlgo evaluation flags --recipe ninja --release-toolchain runs/demo/release --output runs/flags
      mlgo evaluation flags --recipe ninja --row icf-all --row lto --release-toolchain runs/demo/release \\
          --output runs/flags
    """
    from components.core.compiler.inline_plan import require_plan
    from components.core.formats.toolchain import load_toolchain
    from components.core.projects.flags.compare import flags_csv
    from components.evaluation.report.terminal_report import print_flags
    from components.platform.storage import publish

    if request is None:
        raise UserError("exactly one of --recipe and --build names what is built", "see mlgo evaluation flags --help")
    request = replace(request, other_compilers=other_compilers)
    release = load_toolchain(release_toolchain).require_mode("release")
    request.check(release)
    plan_file = require_plan(plan) if plan else None
    with publish(output, "comparison of flags") as directory:
        compared = request.compare(release, directory / "build", plan_file)
        (directory / "flags.json").write_text(encode_json(compared), encoding="utf-8")
        (directory / "flags.csv").write_text(flags_csv(compared), encoding="utf-8")
    print_flags(compared)
    say(f"every program and row: {display_path(output / 'flags.csv')}")
