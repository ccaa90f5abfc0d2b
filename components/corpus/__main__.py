"""python -m components.corpus: extract, build, make, combine, split."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import click

from components import problems
from components.console import UserError, run_step, say
from components.console.number_types import JOBS, LLVM_MAJOR, TIMEOUT_S
from components.corpus.command_edits import edit_options, edits_of
from components.corpus.extract_command import extract
from components.corpus.finish import announce, describe, finish, split_config
from components.corpus.options import PATH, output_option, split_options
from components.corpus.report import DAMAGED, Left, Report
from components.corpus.split import split_modules
from components.formats.corpus import inspect_corpus, load_corpus, project_of
from components.formats.splits import FILE as SPLITS_FILE
from components.formats.splits import read_splits, write_splits
from components.projects.debian.package import DISK_GIB, DebianBuild
from components.projects.debian.package import TIMEOUT_S as TIMEOUT_OF_PACKAGE_S
from components.projects.option import RECIPE
from components.projects.recipe import load_recipes
from components.storage import publish
from components.storage.options import FILE, TREE

_PROBLEM = click.option(
    "--problem", type=click.Choice(problems.names()), default="inlining", show_default=True,
    help="What the corpus is for: recipes are built at its level.",
)  # fmt: skip
_SKIP_DAMAGED = click.option(
    "--skip-damaged", is_flag=True,
    help="Leave modules out whose files are missing or cut off; report.json names them. Without it they are an error.",
)  # fmt: skip
_SOURCES = ("recipe", "existing", "compile_commands")


@click.group()
def main() -> None:
    """Makes a corpus: modules of LLVM bitcode with the cc1 arguments that they are compiled with.

    \b
    Example: a corpus of your own CMake project
      cmake -G Ninja -S . -B build -DCMAKE_EXPORT_COMPILE_COMMANDS=ON \\
        -DCMAKE_C_COMPILER=clang-19 -DCMAKE_CXX_COMPILER=clang++-19 \\
        -DCMAKE_C_FLAGS="-Oz -Xclang -fembed-bitcode=all" \\
        -DCMAKE_CXX_FLAGS="-Oz -Xclang -fembed-bitcode=all"
      ninja -C build
      python -m components.corpus extract --compile-commands build/compile_commands.json --output corpus
    """


main.add_command(extract)


@main.command()
@click.option("--recipe", type=RECIPE, required=True, help="YAML of a project or a set; ours by name, such as demo.")
@output_option
@click.option("--clang", default="clang-19", show_default=True, help="C compiler: a name or a path.")
@click.option("--jobs", type=JOBS, help="Compiles at a time. Default: all processors.")
@click.option("--cache-dir", type=PATH, help="Keeps downloads. Default: $MLGO_CACHE_DIR or ~/.cache/mlgo-pipeline.")
@_PROBLEM
@click.option(
    "--package-timeout-s", type=TIMEOUT_S, default=TIMEOUT_OF_PACKAGE_S, show_default=True,
    help="Seconds that a Debian package may take; one that takes longer is left out.",
)
@click.option(
    "--package-disk-gib", type=click.IntRange(1, 1000), default=DISK_GIB, show_default=True,
    help="GiB that a Debian package's build may fill.",
)
@click.option("--retry-failed", is_flag=True, help="Build Debian packages again that failed before.")
@split_options
def build(
    recipe: Path, output: Path, clang: str, jobs: int | None, cache_dir: Path | None, problem: str,
    package_timeout_s: float, package_disk_gib: int, retry_failed: bool, **split: Any
) -> None:  # fmt: skip
    """Fetches projects, builds them with embedded bitcode, and extracts their modules.

    Debian packages (build: debian) that fail are left out and reported; run again, the command goes on with what is not
    built yet. They are built as root, in a root that is thrown away, or in a privileged container.

    All are built at the level at which the problem is one: -Oz for inlining, -O2 for register allocation. Flags of the
    split overrule the recipe's own.

    \b
    Example: the corpus of the demo
      python -m components.corpus build --recipe components/corpus/recipes/demo.yaml --output corpus
    """
    from components.corpus.build import BuildConfig, build_corpus
    from components.projects.build import clang_version
    from components.storage.cache import default_cache_dir

    recipes = load_recipes(recipe)
    splits = split_config(split, recipes.split, str(recipe))
    found = shutil.which(clang)
    if found is None:
        raise UserError(f"there is no compiler {clang!r}", "sudo apt-get install clang-19, or pass --clang PATH")
    major, *_ = clang_version(found, "pass another --clang")
    cache = (cache_dir or default_cache_dir()).absolute()
    cache.mkdir(parents=True, exist_ok=True)
    with publish(output) as partial, tempfile.TemporaryDirectory(prefix="mlgo-build-", dir=cache) as work:
        config = BuildConfig(
            Path(found).absolute(), Path(work), cache, problems.get(problem).optimization,
            jobs=jobs or len(os.sched_getaffinity(0)), retry_failed=retry_failed,
            package=DebianBuild(major, timeout_s=package_timeout_s, disk_gib=package_disk_gib),
        )  # fmt: skip
        report = build_corpus(recipes.projects, partial, config)
        done = finish(partial, splits, report)
    announce(output, report, done)


@main.command()
@click.option("--input", "source", type=TREE, required=True, help="Directory that is searched for .bc files.")
@output_option
@click.option(
    "--default-args", default="",
    help="What all modules are compiled with, in one string: cc1's arguments behind -cc1, or else clang's.",
)
@_SKIP_DAMAGED
@split_options
def make(source: Path, output: Path, default_args: str, skip_damaged: bool, **split: Any) -> None:
    """Makes a corpus of loose bitcode files.

    \b
    Example:
      python -m components.corpus make --input bitcode --default-args "-cc1 -Oz" --output corpus
    """
    from components.corpus.make import make_corpus

    splits = split_config(split)
    with publish(output) as partial:
        names, damaged = make_corpus(source, partial, default_args.split(), skip_damaged)
        project = source.absolute().name
        report = Report({project: len(names)}, _damaged(damaged, project))
        done = finish(partial, splits, report)
    announce(output, report, done)


@main.command("import")
@click.option("--input", "source", type=TREE, required=True, help="Directory of the corpus that exists.")
@output_option
@split_options
@click.option(
    "--layout",
    type=click.Choice(["packed", "standard"]),
    default="packed",
    show_default=True,
    help="At gs://: small files together in tar archives, many times faster; or each an object, as other tools want.",
)
@_SKIP_DAMAGED
@edit_options
def import_corpus(
    source: Path, output: Path, layout: str, skip_damaged: bool, cmd_add: tuple[str, ...], cmd_remove: tuple[str, ...],
    cmd_replace: tuple[tuple[str, str], ...], **split: Any,
) -> None:  # fmt: skip
    """Copies a corpus that mlgo-utils, or this command elsewhere, made, and splits it.

    A split that is there already is kept, unless a flag asks for another. Profiles that the modules' arguments name
    become part of the copy.

    \b
    Example: a corpus that extract_ir wrote
      python -m components.corpus import --input extracted --output corpus
    Example: back to where ml-compiler-opt's tools read it
      python -m components.corpus import --input gs://B/corpus --output gs://B/plain --layout standard
    Example: the same modules for another processor, without the limit that their build gave the inliner
      python -m components.corpus import --input corpus --output corpus-v3 --cmd-replace -target-cpu x86-64-v3 \\
        --cmd-remove "-mllvm -inline-threshold"
    """
    from components.corpus.take import take_corpus

    keep = (source / SPLITS_FILE).is_file() and all(value in (None, ()) for value in split.values())
    splits = split_config(split)
    edits = edits_of(cmd_add, cmd_remove, cmd_replace)
    with publish(output, packing=layout == "packed") as partial:
        corpus, damaged = take_corpus(source, partial, skip_damaged, edits)
        projects = Counter(module.project for module in corpus)
        report = Report(dict(projects), _damaged(damaged))
        report.write(partial)
        if keep and not damaged:
            done = corpus.splits()
        elif keep:
            done = read_splits(source, [module.name for module in inspect_corpus(source)[0]]).without(set(damaged))
        else:
            done = split_modules(load_corpus(partial).modules, splits)
        write_splits(partial, done)
    announce(output, report, done)


def _damaged(damaged: dict[str, str], project: str = "") -> tuple[Left, ...]:
    """What report.json says of damaged modules: name -> problem. Without `project` it is the first part of the name."""
    return tuple(Left(project or project_of(name), name, DAMAGED, problem) for name, problem in damaged.items())


@main.command()
@click.option("--recipe", type=RECIPE, help="Projects to fetch and build: a YAML file, or one of ours by name: demo.")
@click.option("--existing", type=TREE, help="A corpus that exists already.")
@click.option("--compile-commands", type=FILE, help="compile_commands.json of a finished build.")
@click.option("--llvm-major", type=LLVM_MAJOR, default=19, show_default=True, help="Builds recipes with clang-N.")
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
    """Makes a corpus from the one source that is given: build, import or extract with their defaults, for pipelines.

    \b
    Example:
      python -m components.corpus obtain --recipe demo --output corpus
    """
    given = [name for name, value in context.params.items() if name in _SOURCES and value]
    if len(given) != 1:
        raise UserError(
            f"exactly one source of code is needed, {len(given) or 'none'} given",
            "pass one of --recipe FILE, --existing DIR, --compile-commands FILE",
        )
    if recipe:
        context.invoke(build, recipe=recipe, clang=f"clang-{llvm_major}", problem=problem, output=output)
    elif existing:
        _require_level(existing, problem)
        context.invoke(import_corpus, source=existing, output=output)
    else:
        level = problems.get(problem).cmd_filter
        context.invoke(extract, compile_commands=compile_commands, cmd_filter=level, output=output)


def _require_level(corpus: Path, problem: str) -> None:
    """UserError unless some module of the corpus is of a level at which the problem is one; tells of the others."""
    wanted = problems.get(problem).cmd_filter
    if wanted is None:
        return
    modules = load_corpus(corpus).modules
    others = sum(not any(re.search(wanted, argument) for argument in module.arguments()) for module in modules)
    if others == len(modules):
        raise UserError(
            f"none of the {others} modules of {corpus} was compiled with what {problem} is for ({wanted})",
            f"build the code at {problems.get(problem).optimization} and extract it again",
        )
    if others:
        say(f"{others} of {len(modules)} modules were not compiled with what {problem} is for ({wanted})")


@main.command()
@click.option("--root-dir", type=PATH, required=True, help="Directory whose subdirectories are corpora.")
@split_options
def combine(root_dir: Path, **split: Any) -> None:
    """Describes all corpora in the subdirectories of a directory as one corpus.

    \b
    Example: corpora/zstd and corpora/lz4 become the corpus corpora
      python -m components.corpus combine --root-dir corpora --heldout-project lz4
    """
    from components.corpus.make import combine_corpora
    from components.storage import write_manifest

    splits = split_config(split)
    (root_dir / "manifest.json").unlink(missing_ok=True)
    names = combine_corpora(root_dir)
    projects: dict[str, int] = {}
    for name in names:
        projects[name.split("/")[0]] = projects.get(name.split("/")[0], 0) + 1
    report = Report(projects, ())
    done = finish(root_dir, splits, report)
    write_manifest(root_dir)
    announce(root_dir, report, done)


@main.command()
@click.option("--corpus", type=PATH, required=True, help="Directory of a corpus.")
@split_options
def split(corpus: Path, **split: Any) -> None:
    """Splits a corpus (again) into training, validation and held-out modules: writes its splits.json.

    \b
    Example:
      python -m components.corpus split --corpus corpus --heldout-project lz4 --heldout-fraction 0.2
    """
    from components.storage import write_manifest

    config = split_config(split)
    splits = split_modules(load_corpus(corpus).modules, config)
    # Without a manifest it is no corpus until both files are whole.
    (corpus / "manifest.json").unlink(missing_ok=True)
    write_splits(corpus, splits)
    write_manifest(corpus)
    say(describe(corpus, splits))


if __name__ == "__main__":
    run_step(main)
