"""The commands `mlgo corpus make` and `import`: corpora of bitcode files, and of existing corpora."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from components.core.formats.corpus import project_of
from components.core.formats.splits import FILE as SPLITS_FILE
from components.core.formats.splits import read_splits
from components.core.projects.option import ANY_CORPUS
from components.corpus.command_edits import edit_options, parse_edits
from components.corpus.options import output_option, split_options
from components.corpus.outcome_kind import OutcomeKind
from components.corpus.report import CorpusReport, Skipped
from components.corpus.write_split_and_report import announce, split_config, write_split, write_split_and_report
from components.platform.console.number_types import COUNT
from components.platform.storage import publish
from components.platform.storage.options import WHOLE_TREE

_SKIP_DAMAGED = click.option(
    "--skip-damaged",
    is_flag=True,
    help="Skip modules whose files are missing or truncated and list them in report.json, instead of failing.",
)


@click.command()
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


@click.command("import")
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
