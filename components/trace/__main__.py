"""Command line of the trace step."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from components.compiler.options import ALLOW_CC1_OPTION
from components.console import run_step, say
from components.console.number_types import FRACTION, TIMEOUT_S
from components.storage.options import ARTIFACT, OUTPUT
from components.storage.uri import shown
from components.trace.collect import collect
from components.trace.config import Part, TraceConfig
from components.trace.export import FILE_NAME, export_tfrecord
from components.workers.make import HELP as WORKERS_HELP


@click.group(invoke_without_command=True, subcommand_metavar="[export ...]")
@click.option("--corpus", type=ARTIFACT, help="Corpus to compile: what the corpus step or extract_ir made.")
@click.option("--toolchain", type=ARTIFACT, help="Training toolchain: what the toolchain step made.")
@click.option("--output", type=OUTPUT, help="Directory of the trace; made, or replaced if it is a trace already.")
@click.option("--problem", default="inlining", show_default=True, help="Whose decisions are logged.")
@click.option(
    "--part", type=click.Choice(get_args(Part)), default="learning", show_default=True,
    help="Which modules: a part of the split; learning is train and validation, or all of a corpus without a split.",
)  # fmt: skip
@click.option("--workers", default="local", show_default=True, help=WORKERS_HELP)
@click.option("--timeout-s", type=TIMEOUT_S, default=120.0, show_default=True,
              help="Seconds after which the compile of a module is killed.")  # fmt: skip
@click.option("--max-failed-fraction", type=FRACTION, default=0.05, show_default=True,
              help="Stop with an error if more than this fraction of the modules does not compile.")  # fmt: skip
@ALLOW_CC1_OPTION
@click.pass_context
def main(context: click.Context, **options: object) -> None:
    """Compile a corpus at its own flags with LLVM's default heuristic and record each decision with its features.

    Writes Parquet shards (a row per decision), modules.parquet (sizes), trace.json and report.json. Modules that fail
    or time out are tried once more, then left out and listed in report.json.

    \b
    Example:
      python -m components.trace --corpus runs/demo/corpus --toolchain runs/demo/training --output runs/demo/trace
      python -m components.trace export --format tfrecord --trace runs/demo/trace --output runs/demo/tfrecord
    """
    if context.invoked_subcommand is not None:
        return
    missing = [name for name in ("corpus", "toolchain", "output") if options[name] is None]
    if missing:
        raise click.UsageError(f"Missing option {', '.join('--' + name for name in missing)}.", context)
    config = TraceConfig(**options)  # type: ignore[arg-type]
    collected = collect(config)
    left_out = f", {collected.quarantined} left out" if collected.quarantined else ""
    say(
        f"{shown(config.output)}: {collected.decisions} decisions of {collected.modules} modules{left_out}, "
        f"{collected.wall_s:.1f} s"
    )


@main.command()
@click.option("--trace", type=ARTIFACT, required=True, help="Trace to export.")
@click.option("--output", type=OUTPUT, required=True, help=f"Directory for {FILE_NAME}; made, or replaced.")
@click.option("--format", "form", type=click.Choice(["tfrecord"]), default="tfrecord", show_default=True,
              help="tfrecord: a TFRecord file of tf.train.SequenceExample, one for each module.")  # fmt: skip
def export(trace: Path, output: Path, form: str) -> None:
    """Write a trace in the form that google/ml-compiler-opt's own tools read.

    \b
    Example:
      python -m components.trace export --format tfrecord --trace runs/demo/trace --output runs/demo/tfrecord
    """
    say(f"{shown(output / FILE_NAME)}: {export_tfrecord(trace, output)} sequences")


if __name__ == "__main__":
    run_step(main)
