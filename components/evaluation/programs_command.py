"""The command compare-programs."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import click

from components.console import UserError
from components.projects.option import RECIPE
from components.storage.options import ARTIFACT, OUTPUT

_JOBS = len(os.sched_getaffinity(0))


@click.command("compare-programs")
@click.option("--recipe", type=RECIPE, required=True, help="Recipe of one project or of a set.")
@click.option("--release-toolchain", type=ARTIFACT, required=True, help="Release clang that embeds the policy.")
@click.option("--output", type=OUTPUT, required=True, help="Where programs.json goes.")
@click.option(
    "--stock-clang", type=click.Path(path_type=Path), help="The baseline.  [default: the installed clang-N]"
)
@click.option("--project", "projects", multiple=True, help="Only this project (repeatable).  [default: held-out ones]")
@click.option("--problem", default="regalloc", show_default=True, help="Optimization problem.")
@click.option("--jobs", type=click.IntRange(min=1), default=_JOBS,
              help="Compiles, and programs under valgrind, at a time.  [default: processors]")  # fmt: skip
def compare_programs(
    recipe: Path, release_toolchain: Path, output: Path, stock_clang: Path | None, projects: tuple[str, ...],
    problem: str, jobs: int,
) -> None:  # fmt: skip
    """Builds whole projects with stock clang and with the release clang, runs the benchmarks that their recipes name,
    and compares how many instructions they execute: counted by perf where the machine lets it, else by valgrind.

    Without --project these are the projects that the recipes hold out, or all if they hold out none.

    \b
    Example:
      python -m components.evaluation compare-programs --recipe codecs \\
          --release-toolchain runs/regalloc/release --output runs/regalloc/programs
    """
    from components.evaluation import builds
    from components.evaluation.programs import compare_programs as compare
    from components.evaluation.programs import summarize_programs
    from components.evaluation.table import print_programs
    from components.formats.toolchain import load_toolchain
    from components.projects.recipe import load_recipes
    from components.storage import publish
    from components.storage.cache import default_cache_dir

    release = load_toolchain(release_toolchain).require_mode("release")
    recipes = load_recipes(recipe)
    names = projects or recipes.split.get("heldout_projects") or [project.name for project in recipes.projects]
    chosen = [recipes.project(name) for name in names]
    if not any(project.benchmarks for project in chosen):
        raise UserError(
            f"none of {', '.join(project.name for project in chosen)} has a benchmark to run",
            "add `benchmarks` to the recipe, or choose others with --project",
        )
    with publish(output) as directory:
        work = directory / "build"
        try:
            stock = stock_clang or builds.find_stock_clang(release)
            found = compare(chosen, stock, release, problem, work, default_cache_dir(), jobs)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        summary = summarize_programs(found)
        assert summary is not None
        (directory / "programs.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print_programs(summary)
