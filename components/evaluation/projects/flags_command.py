"""The command `mlgo evaluation flags`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from components.core.console import UserError, say
from components.core.console.number_types import JOBS
from components.core.projects.flags.rows import ALLOWED, ICF_KINDS, ROW_NAMES
from components.core.projects.option import RECIPE
from components.core.storage.options import ARTIFACT, OUTPUT, PROGRAM
from components.core.storage.uri import display_path
from components.evaluation.metrics_types import encode_json
from components.evaluation.projects.commands import PROCESSORS, select_recipes

if TYPE_CHECKING:
    from components.core.projects.flags.builds import Project


@click.command("flags")
@click.option("--recipe", type=RECIPE, help="Recipe of one project or of a set, whose programs are built.")
@click.option("--project", "projects", multiple=True, help="Only this project (repeatable).  [default: held-out ones]")
@click.option(
    "--build",
    "command",
    metavar="COMMAND",
    help="In place of --recipe, your build: a shell command that runs in a fresh copy of --source for every row. Its "
    "compilers are CC and CXX, and first in PATH; JOBS is --jobs.",
)
@click.option(
    "--source",
    type=click.Path(path_type=Path),
    help="Directory of the source tree, without files of an earlier build.",
)
@click.option(
    "--program",
    "programs",
    multiple=True,
    metavar="PATH",
    help="Program of --build, relative to --source (repeatable).",
)
@click.option(
    "--exclude",
    "excluded",
    multiple=True,
    metavar="GLOB",
    help="Files and directories of --source that are not copied (repeatable), such as an earlier build.",
)
@click.option("--release-toolchain", type=ARTIFACT, required=True, help="Release clang that embeds the policy.")
@click.option("--stock-clang", type=PROGRAM, help="Clang of the baseline.  [default: the installed clang-N]")
@click.option(
    "--row",
    "rows",
    multiple=True,
    metavar="NAME",
    help=f"Only this row (repeatable): {', '.join(ROW_NAMES)}.  [default: all that assume nothing that --allow names]",
)
@click.option(
    "--icf",
    type=click.Choice(ICF_KINDS),
    default="all",
    show_default=True,
    help="Identical code folding of the rows after icf-all. safe: functions whose addresses are taken stay apart.",
)
@click.option(
    "--allow",
    "allowed",
    type=click.Choice(list(ALLOWED)),
    multiple=True,
    help=f"Measure such rows, too; those after them have their flags (repeatable). They assume: "
    f"{'; '.join(f'{name}: {assumption}' for name, assumption in ALLOWED.items())}.",
)
@click.option("--jobs", type=JOBS, default=PROCESSORS, help="Parallel compiles.  [default: processors]")
@click.option("--output", type=OUTPUT, required=True, help="Directory for flags.csv and flags.json.")
def flags(
    recipe: Path | None,
    projects: tuple[str, ...],
    command: str | None,
    source: Path | None,
    programs: tuple[str, ...],
    excluded: tuple[str, ...],
    release_toolchain: Path,
    stock_clang: Path | None,
    rows: tuple[str, ...],
    icf: str,
    allowed: tuple[str, ...],
    jobs: int,
    output: Path,
) -> None:
    """Build programs under rows of flags that make them smaller, with stock clang and with the release clang, and show
    what each row gives, the best row of stock clang, the best of all, and the line to put into the build.

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

    Sizes are those of the file after llvm-strip. A row that does not build is listed with the reason.

    \b
    Example: your own build, and the programs of a recipe
      mlgo evaluation flags --build 'cmake -S . -B build && cmake --build build' --source . --exclude build \\
          --program build/app --release-toolchain build/clang --output runs/flags
      mlgo evaluation flags --recipe ninja --release-toolchain runs/demo/release --output runs/flags
      mlgo evaluation flags --recipe ninja --row icf-all --row lto --release-toolchain runs/demo/release \\
          --output runs/flags
    """
    from components.core.formats.toolchain import load_toolchain
    from components.core.projects.flags.build_variants import find_stock_clang
    from components.core.projects.flags.builds import BuildPlace, find_binutils
    from components.core.projects.flags.compare import compare_flags, flags_csv
    from components.core.projects.flags.rows import plan_rows
    from components.core.storage import publish
    from components.core.storage.cache import default_cache_dir
    from components.evaluation.report.terminal_report import print_flags

    to_build = _projects(recipe, projects, command, source, programs, excluded)
    release = load_toolchain(release_toolchain).require_mode("release")
    stock = find_stock_clang(release, stock_clang)
    planned = plan_rows(release, stock, rows, icf, allowed)
    binutils = find_binutils(stock)
    with publish(output, "comparison of flags") as directory:
        place = BuildPlace(directory / "build", default_cache_dir(), jobs, binutils)
        try:
            compared = compare_flags(to_build, planned, stock, release, place)
        finally:
            place.clear()
        (directory / "flags.json").write_text(encode_json(compared), encoding="utf-8")
        (directory / "flags.csv").write_text(flags_csv(compared), encoding="utf-8")
    print_flags(compared)
    say(f"every program and row: {display_path(output / 'flags.csv')}")


def _projects(
    recipe: Path | None,
    names: tuple[str, ...],
    command: str | None,
    source: Path | None,
    programs: tuple[str, ...],
    excluded: tuple[str, ...],
) -> list[Project]:
    from components.core.projects.flags.builds import OwnBuild, of_recipe

    if (recipe is None) == (command is None):
        raise UserError("exactly one of --recipe and --build names what is built", "see mlgo evaluation flags --help")
    if recipe is not None:
        if source or programs or excluded:
            raise UserError("--source, --program and --exclude belong to --build", "leave them out, a recipe has them")
        recipes = select_recipes(recipe, tuple(dict.fromkeys(names)))
        found: list[Project] = []
        for project in recipes:
            if (programs_of := of_recipe(project)) is None:
                say(f"{project.name}: its recipe names no program, so it is left out")
            else:
                found.append(programs_of)
        if not found:
            raise UserError(
                f"no recipe of {', '.join(project.name for project in recipes)} names a program",
                "list programs as `binaries` in the recipe; libraries alone have no rows",
            )
        return found
    assert command is not None
    if names:
        raise UserError("--project belongs to --recipe", "leave it out")
    if source is None or not programs:
        raise UserError("--build needs --source and --program", "pass the source tree, and each program that it makes")
    own = OwnBuild(source, command, programs, excluded)
    own.check()
    return [own]
