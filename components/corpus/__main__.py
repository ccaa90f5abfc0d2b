"""Command line of the corpus step: mlgo corpus compilers, extract, build, make, import, obtain, combine, split."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import click

from components.corpus.build_command import build
from components.corpus.compilers import compilers
from components.corpus.extract_command import extract
from components.corpus.import_command import import_corpus, make
from components.corpus.obtain_command import obtain
from components.corpus.options import PATH, split_options
from components.corpus.report import CorpusReport
from components.corpus.write_split_and_report import (
    announce,
    describe,
    split_config,
    write_split,
    write_split_and_report,
)
from components.platform.command import run_step
from components.platform.console import say


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


for command in (extract, compilers, build, make, import_corpus, obtain):
    main.add_command(command)


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
