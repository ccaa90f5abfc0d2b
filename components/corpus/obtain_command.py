"""The command `mlgo corpus obtain`, which the pipelines run."""

from __future__ import annotations

import re
from pathlib import Path

import click

from components.core import problems
from components.core.formats.corpus import Part, load_corpus
from components.core.formats.strategy import DEFAULT_LLVM_MAJOR
from components.core.projects.extraction_options import (
    INPUT_TYPES,
    THINLTO_BUILDS,
    InputType,
    Source,
    ThinLto,
    Unit,
    check_extraction,
)
from components.core.projects.option import COMPILE_COMMANDS, EXISTING_CORPUS, RECIPE, TRUST_CORPUS
from components.corpus.build_command import build
from components.corpus.extract_command import extract
from components.corpus.extraction.outcome import describe_newer_llvm
from components.corpus.import_command import import_corpus
from components.corpus.options import PROBLEM, UNIT, output_option
from components.corpus.split import MIN_SOURCES
from components.platform.console import say
from components.platform.console.number_types import LLVM_MAJOR
from components.platform.errors import UserError
from components.platform.storage.manifest import list_names
from components.platform.storage.options import TREE
from components.platform.storage.uri import in_object_storage

_OPTIONS = {"corpus": "existing"}
"""Source, as the pipelines name it -> the option here, where that differs."""


@click.command()
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
@click.option("--input", "source", help="Input of mlgo corpus extract: a file that lists objects, or a directory.")
@click.option("--input-type", type=click.Choice(INPUT_TYPES), help="As of mlgo corpus extract.")
@click.option(
    "--thinlto-build",
    type=click.Choice(THINLTO_BUILDS),
    help="Kind of the ThinLTO build. local: lld saved the modules in the directory --input.",
)
@click.option("--obj-base-dir", default="", metavar="DIR|URI", help="As of mlgo corpus extract.")
@click.option("--default-args", default="", help="As of mlgo corpus extract.")
@click.option("--cmd-filter", default="", help="As of mlgo corpus extract.  [default: the problem's level]")
@click.option(
    "--unit",
    type=UNIT,
    default="object",
    show_default=True,
    help="What a module is. program: those that a recipe names as binaries, or what the links in --input made.",
)
@click.option(
    "--llvm-major",
    type=LLVM_MAJOR,
    default=DEFAULT_LLVM_MAJOR,
    show_default=True,
    help="Version N of the training clang's LLVM: clang-N builds recipes, and modules of a newer one are left out.",
)
@PROBLEM
@output_option
@click.pass_context
def obtain(
    context: click.Context,
    recipe: Path | None,
    existing: Path | None,
    compile_commands: Path | None,
    source: str | None,
    input_type: InputType | None,
    thinlto_build: ThinLto | None,
    obj_base_dir: str,
    default_args: str,
    cmd_filter: str,
    unit: Unit,
    llvm_major: int,
    problem: str,
    output: Path,
) -> None:
    """Make a corpus from exactly one source: run build, import or extract with its defaults. For pipelines.

    \b
    Examples:
      mlgo corpus obtain --recipe demo --output corpus
      mlgo corpus obtain --input a.params --input-type params --obj-base-dir build --output corpus
    """
    given: dict[Source, object] = {
        "recipe": recipe,
        "corpus": existing,
        "compile_commands": compile_commands,
        "input": source,
    }
    named = [name for name, value in given.items() if value]
    if len(named) != 1:
        raise UserError(
            f"exactly one source of code is required, got {len(named) or 'none'}",
            "pass one of --recipe FILE, --existing DIR, --compile-commands FILE, --input PATH",
        )
    check_extraction(
        _as_option, named[0], problem, unit, input_type, thinlto_build, obj_base_dir, default_args, cmd_filter
    )
    if recipe:
        context.invoke(build, recipe=recipe, clang=f"clang-{llvm_major}", problem=problem, unit=unit, output=output)
    elif existing:
        _require_level(existing, problem)
        _require_readable(existing, llvm_major)
        context.invoke(import_corpus, source=existing, output=output)
    else:
        local = thinlto_build == "local"  # whose modules have no arguments
        base = TREE.convert(obj_base_dir, None, context) if in_object_storage(obj_base_dir) else Path(obj_base_dir)
        context.invoke(
            extract,
            compile_commands=compile_commands,
            source=source,
            input_type="directory" if local else input_type,
            thinlto=thinlto_build,
            obj_base_dir=base if obj_base_dir else None,
            default_args=default_args or None,
            cmd_filter=None if local else cmd_filter or problems.get(problem).cmd_filter,
            llvm_major=None if local else llvm_major,
            unit=unit,
            output=output,
        )
    _require_parts(output)


def _as_option(name: str, value: object) -> str:
    return f"--{_OPTIONS.get(name, name).replace('_', '-')} {value}"


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
