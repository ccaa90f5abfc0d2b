"""The command `mlgo corpus build`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import click

from components.core import problems
from components.core.projects.debian_build.package import DISK_GIB, DebianBuild
from components.core.projects.debian_build.package import TIMEOUT_S as TIMEOUT_OF_PACKAGE_S
from components.core.projects.extraction_options import Unit
from components.core.projects.option import RECIPE
from components.core.projects.recipe import load_recipes
from components.corpus.options import PATH, PROBLEM, UNIT, output_option, require_size_level, split_options
from components.corpus.write_split_and_report import announce, split_config, write_split_and_report
from components.platform.console.number_types import JOBS, TIMEOUT_S
from components.platform.errors import UserError
from components.platform.processes.cgroup import available_processors
from components.platform.storage import publish


@click.command()
@click.option(
    "--recipe",
    type=RECIPE,
    required=True,
    help="Recipe of a project or a set: a YAML file or the name of a built-in one, such as demo.",
)
@output_option
@click.option("--clang", default="clang-19", show_default=True, help="C compiler: a name or a path.")
@click.option("--jobs", type=JOBS, help="Parallel compiles. Default: all processors.")
@click.option(
    "--cache-dir", type=PATH, help="Directory for downloads. Default: $MLGO_CACHE_DIR or ~/.cache/mlgo-pipeline."
)
@PROBLEM
@click.option(
    "--unit",
    type=UNIT,
    default="object",
    show_default=True,
    help="What a module is. program: a linked program or shared library; those that a recipe names as binaries.",
)
@click.option(
    "--package-timeout-s",
    type=TIMEOUT_S,
    default=TIMEOUT_OF_PACKAGE_S,
    show_default=True,
    help="Time limit in seconds for a Debian package; a package that takes longer is skipped.",
)
@click.option(
    "--package-disk-gib",
    type=click.IntRange(1, 1000),
    default=DISK_GIB,
    show_default=True,
    help="Disk limit in GiB for the build of a Debian package.",
)
@click.option("--retry-failed", is_flag=True, help="Rebuild Debian packages that failed before.")
@split_options
def build(
    recipe: Path,
    output: Path,
    clang: str,
    jobs: int | None,
    cache_dir: Path | None,
    problem: str,
    unit: Unit,
    package_timeout_s: float,
    package_disk_gib: int,
    retry_failed: bool,
    **split: Any,
) -> None:
    """Fetch projects, build them with embedded bitcode, and extract their modules.

    Debian packages (build: debian) that fail are skipped and reported; a second run continues with the packages that
    are not built yet. Building them requires root: they are built in a temporary root directory, or in a privileged
    container.

    All projects are built at the problem's optimization level: -Oz for inlining, -O2 for register allocation. The split
    options override the recipe's split.

    \b
    Example: the corpus of the demo
      mlgo corpus build --recipe components/core/projects/recipes/demo.yaml --output corpus
    """
    from components.core.compiler.clang_programs import clang_version
    from components.corpus.sources.build_config import BuildConfig
    from components.corpus.sources.recipe_projects import build_corpus
    from components.platform.storage.cache import default_cache_dir

    if unit == "program":
        require_size_level(problems.get(problem))
    recipes = load_recipes(recipe)
    splits = split_config(split, recipes.split, str(recipe))
    program = shutil.which(clang)
    if program is None:
        raise UserError(f"compiler {clang!r} not found", "sudo apt-get install clang-19, or pass --clang PATH")
    major, *_ = clang_version(program, "pass another --clang")
    cache = (cache_dir or default_cache_dir()).absolute()
    cache.mkdir(parents=True, exist_ok=True)
    with publish(output, "corpus") as partial, tempfile.TemporaryDirectory(prefix="mlgo-build-", dir=cache) as work:
        config = BuildConfig(
            Path(program).absolute(),
            Path(work),
            cache,
            problems.get(problem).optimization,
            jobs=jobs or available_processors(),
            retry_failed=retry_failed,
            unit=unit,
            package=DebianBuild(major, timeout_s=package_timeout_s, disk_gib=package_disk_gib),
        )
        report = build_corpus(recipes.projects, partial, config)
        done = write_split_and_report(partial, splits, report)
    announce(output, report, done)
