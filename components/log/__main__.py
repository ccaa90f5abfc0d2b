"""Command line of `mlgo log`."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import click

from components.core.compiler.logs.records import LogReader, Record, open_log
from components.core.formats.features import FeatureSpec
from components.log.show import (
    Format,
    Write,
    choose_features,
    select,
    write_csv,
    write_parquet,
    write_text,
)
from components.platform.command import run_step
from components.platform.console import say
from components.platform.console.number_types import COUNT
from components.platform.errors import UserError
from components.platform.storage.options import FILE
from components.platform.storage.output_files import replace_file


@click.group()
def main() -> None:
    """Show training logs: the decisions of a compile with their features.

    \b
    Example:
      mlgo log show a.log --features callee_users,cost_estimate,inlining_decision
    """


@main.command("show", short_help="Show the decisions in a training log as text, CSV or Parquet.")
@click.argument("log", metavar="FILE", type=FILE)
@click.option(
    "--format",
    "form",
    type=click.Choice(get_args(Format)),
    default="text",
    show_default=True,
    help="text: a block for each decision; csv and parquet: a row for each. A tensor of several elements has columns "
    "NAME.0, NAME.1, ... in csv, and is a list in parquet.",
)
@click.option("--output", type=click.Path(path_type=Path), help="File to write.  [default: standard output]")
@click.option("--context", help="Only decisions of this context: a function for register allocation.")
@click.option("--features", default="", metavar="NAMES", help="Only these tensors, separated by commas.")
@click.option("--limit", type=COUNT, help="Only the first decisions.")
def show_command(log: Path, form: Format, output: Path | None, context: str | None, features: str, limit: int) -> None:
    """Show the decisions in a training log of LLVM, of our training clang (-training-log, -regalloc-training-log) or of
    LLVM's own development mode. The log is read decision by decision, so it may be of any size.

    \b
    Examples:
      clang -Oz -c a.c -mllvm -enable-ml-inliner=development -mllvm -training-log=a.log
      mlgo log show a.log --features callee_users,cost_estimate,inlining_decision
      mlgo log show a.log --format parquet --output a.parquet
    """
    if form == "parquet" and output is None:
        raise UserError("--format parquet without --output: it is no text", "pass --output FILE")
    with open_log(log) as reader:
        chosen = choose_features(reader, [name for name in features.split(",") if name])
        records = select(reader, context, limit)
        if output is None:
            _write(form, records, chosen, reader, sys.stdout.write)
            return
        with replace_file(output) as stream:
            if form == "parquet":
                count = write_parquet(records, chosen, reader.score, stream)
            else:
                text = codecs.getwriter("utf-8")(stream, "surrogateescape")
                count = _write(form, records, chosen, reader, text.write)
    say(f"{output}: {count} decisions")


def _write(
    form: Format, records: Iterator[Record], features: list[FeatureSpec], reader: LogReader, write: Write
) -> int:
    return write_text(records, features, write) if form == "text" else write_csv(records, features, reader.score, write)


if __name__ == "__main__":
    run_step(main)
