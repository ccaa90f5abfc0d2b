"""Command line of the corpus step: mlgo corpus compilers, extract, build, make, import, obtain, combine, split."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import click

from components.core import problems
from components.core.formats.corpus import Part, load_corpus, project_of
from components.core.formats.splits import FILE as SPLITS_FILE
from components.core.formats.splits import read_splits
from components.core.formats.strategy import DEFAULT_LLVM_MAJOR
from components.core.projects.debian_build.package import DISK_GIB, DebianBuild
from components.core.projects.debian_build.package import TIMEOUT_S as TIMEOUT_OF_PACKAGE_S
from components.core.projects.option import ANY_CORPUS, COMPILE_COMMANDS, EXISTING_CORPUS, RECIPE, TRUST_CORPUS
from components.core.projects.recipe import load_recipes
from components.corpus.command_edits import edit_options, parse_edits
from components.corpus.compilers import compilers
from components.corpus.extract_command import extract
from components.corpus.extraction.outcome import describe_newer_llvm
from components.corpus.options import PATH, UNIT, Unit, output_option, require_size_level, split_options
from components.corpus.outcome_kind import OutcomeKind
from components.corpus.report import CorpusReport, Skipped
from components.corpus.split import MIN_SOURCES
from components.corpus.write_split_and_report import (
    announce,
    describe,
    split_config,
    write_split,
    write_split_and_report,
)
from components.platform.command import run_step
from components.platform.console import say
from components.platform.console.number_types import COUNT, JOBS, LLVM_MAJOR, TIMEOUT_S
from components.platform.errors import UserError
from components.platform.processes.cgroup import available_processors
from components.platform.storage import publish
from components.platform.storage.manifest import list_names
from components.platform.storage.options import WHOLE_TREE

_PROBLEM = click.option(
    "--problem",
    type=click.Choice(problems.names()),
    default="inlining",
    show_default=True,
    help="Problem that the corpus is for; recipes are built at its optimization level.",
)
_SKIP_DAMAGED = click.option(
    "--skip-damaged",
    is_flag=True,
    help="Skip modules whose files are missing or truncated and list them in report.json, instead of failing.",
)
_SOURCES = ("recipe", "existing", "compile_commands")


@click.group()
def main() -> None:
    """Make a corpus: modules of LLVM bitcode with the cc1 arguments that they are compiled with.

    \b
    Example: a corpus of your own CMake project
      mlgo corpus compilers --output compilers
      cmake -G Ninja -S . -B build -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DCMAKE_BUILD_TYPE=Release \\
        -DCMAKE_C_COMPILER=$PWD/compilers/clang -DCMAKE_CXX_COMPILER=$PWD/compilers/clang++
      ninja -C build
      mlgo corpus extract --compile-commands build/compile_commands.json --output corpus
    """


main.add_command(extract)
main.add_command(compilers)


@main.command()
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
@_PROBLEM
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


@main.command()
@click.option("--input", "source", type=WHOLE_TREE, required=True, help="Directory to search for .bc files.")
@output_option
@click.option(
    "--default-args",
    default="",
    help="Arguments that all modules are compiled with, in one string: cc1's if it starts with -cc1, else clang's.",
)
@_SKIP_DAMAGED
@split_options
def make(source: Path, output: Path, default_args: str, skip_damaged: bool, **split: Any) -> None:
    """Make a corpus from bitcode files.

    \b
    Example:
      mlgo corpus make --input bitcode --default-args "-cc1 -Oz" --output corpus
    """
    from components.corpus.sources.bitcode_files import make_corpus

    splits = split_config(split)
    with publish(output, "corpus") as partial:
        names, damaged = make_corpus(source, partial, default_args.split(), skip_damaged)
        project = source.absolute().name
        report = CorpusReport({project: len(names)}, _list_skipped(damaged, project))
        done = write_split_and_report(partial, splits, report)
    announce(output, report, done)


@main.command("import")
@click.option("--input", "source", type=ANY_CORPUS, required=True, help="Directory of the existing corpus.")
@output_option
@split_options
@click.option(
    "--layout",
    type=click.Choice(["packed", "standard"]),
    default="packed",
    show_default=True,
    help="Layout in object storage. packed: small files in tar archives, many times faster; standard: an object per "
    "file, as other tools expect.",
)
@click.option(
    "--max-modules-per-project",
    type=COUNT,
    help="Copy so many modules of each project at most: more projects teach more than more modules of one.",
)
@_SKIP_DAMAGED
@edit_options
def import_corpus(
    source: Path,
    output: Path,
    layout: str,
    max_modules_per_project: int | None,
    skip_damaged: bool,
    cmd_add: tuple[str, ...],
    cmd_remove: tuple[str, ...],
    cmd_replace: tuple[tuple[str, str], ...],
    **split: Any,
) -> None:
    """Copy a corpus that mlgo-utils or mlgo corpus wrote, and split it.

    An existing split is kept unless a split option is given. Profiles that the modules' arguments name are copied, too.

    \b
    Example: a corpus that extract_ir wrote
      mlgo corpus import --input extracted --output corpus
    Example: a copy that ml-compiler-opt's tools can read
      mlgo corpus import --input gs://B/corpus --output gs://B/plain --layout standard
    Example: fifty modules of each project of a large corpus
      mlgo corpus import --input corpus --max-modules-per-project 50 --output small
    Example: the same modules for another processor, without the inline threshold of their build
      mlgo corpus import --input corpus --output corpus-v3 --cmd-replace -target-cpu x86-64-v3 \\
        --cmd-remove "-mllvm -inline-threshold"
    """
    from components.corpus.sources.import_corpus import import_modules

    keep = (source / SPLITS_FILE).is_file() and all(value in (None, ()) for value in split.values())
    splits = split_config(split)
    edits = parse_edits(cmd_add, cmd_remove, cmd_replace)
    with publish(output, "corpus", packing=layout == "packed") as partial:
        corpus, damaged = import_modules(source, partial, skip_damaged, edits, max_modules_per_project)
        projects = Counter(module.project for module in corpus)
        report = CorpusReport(dict(projects), _list_skipped(damaged))
        report.write(partial)
        names = corpus.description["modules"]
        gone = set(names) - {module.name for module in corpus}
        done = write_split(partial, read_splits(source, names).without(gone) if keep else splits)
    announce(output, report, done)


def _list_skipped(damaged: dict[str, str], project: str = "") -> tuple[Skipped, ...]:
    """Return the entries of report.json for damaged modules.

    Args:
        damaged: module name -> what is wrong with its files.
        project: project of all modules; if empty, the first part of each name.
    """
    return tuple(
        Skipped(project or project_of(name), name, OutcomeKind.DAMAGED, problem) for name, problem in damaged.items()
    )


@main.command()
@click.option(
    "--recipe",
    type=RECIPE,
    help="Projects to fetch and build: a YAML file or the name of a built-in recipe, such as demo.",
)
@click.option("--existing", type=EXISTING_CORPUS, help="Directory of an existing corpus.")
@TRUST_CORPUS
@click.option(
    "--compile-commands", type=COMPILE_COMMANDS, help="compile_commands.json of a finished build, or its directory."
)
@click.option(
    "--llvm-major",
    type=LLVM_MAJOR,
    default=DEFAULT_LLVM_MAJOR,
    show_default=True,
    help="Version N of the training clang's LLVM: clang-N builds recipes, and modules of a newer one are left out.",
)
@_PROBLEM
@output_option
@click.pass_context
def obtain(
    context: click.Context,
    recipe: Path | None,
    existing: Path | None,
    compile_commands: Path | None,
    llvm_major: int,
    problem: str,
    output: Path,
) -> None:
    """Make a corpus from exactly one source: run build, import or extract with its defaults. For pipelines.

    \b
    Example:
      mlgo corpus obtain --recipe demo --output corpus
    """
    sources = [name for name, value in context.params.items() if name in _SOURCES and value]
    if len(sources) != 1:
        raise UserError(
            f"exactly one source of code is required, got {len(sources) or 'none'}",
            "pass one of --recipe FILE, --existing DIR, --compile-commands FILE",
        )
    if recipe:
        context.invoke(build, recipe=recipe, clang=f"clang-{llvm_major}", problem=problem, output=output)
    elif existing:
        _require_level(existing, problem)
        _require_readable(existing, llvm_major)
        context.invoke(import_corpus, source=existing, output=output)
    else:
        level = problems.get(problem).cmd_filter
        context.invoke(
            extract, compile_commands=compile_commands, cmd_filter=level, llvm_major=llvm_major, output=output
        )
    _require_parts(output)


def _require_parts(directory: Path) -> None:
    """Check that a corpus has modules for each step that follows. UserError if a part of its split is empty."""
    corpus = load_corpus(directory)
    if len(corpus.modules) < MIN_SOURCES:
        raise UserError(
            f"{len(corpus.modules)} modules are too few to train on, to select the best policy with, and to report on",
            f"train on at least {MIN_SOURCES} modules, better on a hundred; mlgo toolchain --mode release --policy "
            "pretrained needs no training",
        )
    uses: dict[Part, str] = {"train": "train on", "validation": "select the best policy with", "heldout": "report on"}
    for part, use in uses.items():
        if not corpus.split(part):
            raise UserError(
                f"none of the {len(corpus.modules)} modules is left to {use}: {part} is empty in the corpus's split",
                "add code (versions of one source file are in the same part); or import the corpus with other "
                "--validation-fraction and --heldout-fraction (mlgo corpus import --help), and pass that as --corpus",
            )


def _require_level(corpus: Path, problem: str) -> None:
    """Check that modules were compiled at the problem's optimization level; print how many were not.

    Raises:
        UserError: no module was.
    """
    level = problems.get(problem).cmd_filter
    if level is None:
        return
    modules = load_corpus(corpus).modules
    others = sum(not any(re.search(level, argument) for argument in module.arguments()) for module in modules)
    if others == len(modules):
        raise UserError(
            f"none of the {others} modules in {corpus} was compiled at the level that {problem} needs ({level})",
            f"build the code at {problems.get(problem).optimization}: with the compilers of mlgo corpus compilers "
            f"--problem {problem}, whose level wins over the project's own; then extract it again",
        )
    if others:
        say(f"{others} of {len(modules)} modules were not compiled at the level that {problem} needs ({level})")


def _require_readable(corpus: Path, llvm_major: int) -> None:
    """Check that an LLVM reads the modules of a corpus; print which ones it does not. UserError if it reads none."""
    modules = load_corpus(corpus).modules
    newer = {module.name: major for module in modules if (major := module.llvm_major()) > llvm_major}
    if not newer:
        return
    reason = describe_newer_llvm(newer.values(), llvm_major)
    if len(newer) == len(modules):
        raise UserError(
            f"all {len(modules)} modules in {corpus} were {reason}",
            "build the code with the compilers of mlgo corpus compilers; or train with the newer LLVM: --llvm-major",
        )
    say(f"{len(newer)} of {len(modules)} modules were {reason}: {list_names(list(newer))}")


@main.command()
@click.option("--root-dir", type=PATH, required=True, help="Directory whose subdirectories are corpora.")
@split_options
def combine(root_dir: Path, **split: Any) -> None:
    """Combine all corpora in the subdirectories of a directory into one corpus.

    \b
    Example: combine corpora/zstd and corpora/lz4 into the corpus corpora
      mlgo corpus combine --root-dir corpora --heldout-project lz4
    """
    from components.corpus.sources.bitcode_files import combine_corpora
    from components.corpus.write_split_and_report import rewriting

    splits = split_config(split)
    with rewriting(root_dir, verified=False):
        names = combine_corpora(root_dir)
        report = CorpusReport(dict(Counter(name.split("/")[0] for name in names)), ())
        done = write_split_and_report(root_dir, splits, report)
    announce(root_dir, report, done)


@main.command()
@click.option("--corpus", type=PATH, required=True, help="Directory of a corpus.")
@split_options
def split(corpus: Path, **split: Any) -> None:
    """Split a corpus into training, validation and held-out modules, and write its splits.json.

    \b
    Example:
      mlgo corpus split --corpus corpus --heldout-project lz4 --heldout-fraction 0.2
    """
    from components.corpus.write_split_and_report import rewriting

    config = split_config(split)
    with rewriting(corpus, verified=True):  # Before the corpus is read: damage is named by the damaged file.
        done = write_split(corpus, config)
    say(describe(corpus, done))


if __name__ == "__main__":
    run_step(main)
