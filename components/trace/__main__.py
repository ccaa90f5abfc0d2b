"""Command line of the trace step."""

from __future__ import annotations

import os
from pathlib import Path
from typing import get_args

import click

from components.core.compiler.options import ALLOW_CC1_OPTION
from components.core.projects.option import CORPUS, TRUST_CORPUS
from components.platform.command import run_step
from components.platform.console import say
from components.platform.console.number_types import FRACTION, SAMPLING_RATE, SEED, TIMEOUT_S
from components.platform.errors import UserError
from components.platform.storage.options import ARTIFACT, FILE, OUTPUT
from components.platform.storage.uri import display_path
from components.platform.workers.factory import HELP as WORKERS_HELP
from components.trace.config import TFRECORD_FILE, Part, TraceConfig


@click.group(
    invoke_without_command=True, subcommand_metavar="[export|import ...]", context_settings={"show_default": True}
)
@click.option("--corpus", type=CORPUS, help="Corpus to compile: output of the corpus step or of extract_ir.")
@click.option("--toolchain", type=ARTIFACT, help="Training toolchain: output of the toolchain step.")
@click.option("--output", type=OUTPUT, help="Directory of the trace; created, or replaced if it is already a trace.")
@click.option("--problem", default="inlining", help="Problem whose decisions are logged.")
@click.option(
    "--part",
    type=click.Choice(get_args(Part)),
    default="learning",
    help="Part of the split to compile; learning: train and validation, or all modules of a corpus without a split.",
)
@click.option(
    "--sampling-rate",
    type=SAMPLING_RATE,
    default=1.0,
    help="Fraction of the modules of the part to compile, chosen by their names and --seed.",
)
@click.option("--seed", type=SEED, default=0, help="Seed of the choice with --sampling-rate.")
@click.option("--workers", default="local", help=WORKERS_HELP)
@click.option(
    "--timeout-s",
    type=TIMEOUT_S,
    default=120.0,
    help="Time limit in seconds for the compile of a module.",
)
@click.option(
    "--max-failed-fraction",
    type=FRACTION,
    default=0.05,
    help="Fail if more than this fraction of the modules does not compile.",
)
@ALLOW_CC1_OPTION
@TRUST_CORPUS
@click.pass_context
def main(context: click.Context, **options: object) -> None:
    """Compile a corpus with its own flags and LLVM's default heuristic, and record each decision with its features.

    Writes Parquet shards (a row per decision), modules.parquet (sizes), trace.json and report.json. Modules that fail
    or time out are retried once, then skipped and listed in report.json.

    \b
    Example:
      mlgo trace --corpus runs/demo/corpus --toolchain runs/demo/training --output runs/demo/trace
      mlgo trace export --format tfrecord --trace runs/demo/trace --output runs/demo/tfrecord
      mlgo trace import --records default_trace.tfrecord --output runs/trace
    """
    if context.invoked_subcommand is not None:
        return
    if missing := [name for name in ("corpus", "toolchain", "output") if options[name] is None]:
        raise click.UsageError(f"Missing option {', '.join('--' + name for name in missing)}.", context)
    from components.trace.collect import collect  # needs pyarrow

    config = TraceConfig(**options)  # type: ignore[arg-type]
    collected = collect(config)
    skipped_note = f", {collected.quarantined} skipped" if collected.quarantined else ""
    say(
        f"{display_path(config.output)}: {collected.decisions} decisions in {collected.modules} modules{skipped_note}, "
        f"{collected.wall_s:.1f} s"
    )


@main.command()
@click.option("--trace", type=ARTIFACT, required=True, help="Trace to export.")
@click.option("--output", type=OUTPUT, required=True, help=f"Directory for {TFRECORD_FILE}; created, or replaced.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["tfrecord"]),
    default="tfrecord",
    show_default=True,
    help="tfrecord: a TFRecord file with one tf.train.SequenceExample per module.",
)
def export(trace: Path, output: Path, form: str) -> None:
    """Convert a trace to the format of google/ml-compiler-opt's tools.

    \b
    Example:
      mlgo trace export --format tfrecord --trace runs/demo/trace --output runs/demo/tfrecord
    """
    from components.trace.tfrecord import export_tfrecord  # needs pyarrow

    say(f"{display_path(output / TFRECORD_FILE)}: {export_tfrecord(trace, output)} sequences")


@main.command("import")
@click.option(
    "--records",
    type=FILE,
    required=True,
    multiple=True,
    help="TFRecord file of ml-compiler-opt's generate_default_trace.py; repeatable.",
)
@click.option("--problem", default="inlining", show_default=True, help="Problem whose decisions are in the file.")
@click.option("--output", type=OUTPUT, required=True, help="Directory of the trace; created, or replaced.")
def import_command(records: tuple[Path, ...], problem: str, output: Path) -> None:
    """Convert a trace of google/ml-compiler-opt's tools to a trace. Needs TensorFlow.

    The records do not name modules, so the trace calls them FILE/NUMBER, and has no sizes.

    \b
    Example:
      mlgo trace import --records default_trace.tfrecord --output runs/trace
      mlgo vocab --trace runs/trace --output runs/vocab
      mlgo warmstart --trace runs/trace --vocab runs/vocab --toolchain runs/demo/training --output runs/warmstart
    """
    from components.core import problems

    problems.get(problem)
    for file in records:
        if not file.is_file():
            what = "is a directory" if file.is_dir() else "does not exist"
            raise UserError(f"{display_path(file)} {what}", "pass a file that generate_default_trace.py wrote")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from components.trace.import_tfrecord import import_tfrecord  # takes seconds

    modules, decisions = import_tfrecord(records, problem, output)
    say(f"{display_path(output)}: {decisions} decisions in {modules} modules")


if __name__ == "__main__":
    run_step(main)
