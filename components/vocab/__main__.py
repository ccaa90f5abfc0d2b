"""Command line of the vocab step."""

from __future__ import annotations

from pathlib import Path

import click

from components.core.formats.vocab import QUANTILES
from components.platform.command import run_step
from components.platform.console import say
from components.platform.console.number_types import SAMPLING_RATE, SEED
from components.platform.storage.options import ARTIFACT, OUTPUT
from components.platform.storage.uri import display_path
from components.vocab.config import VocabConfig


@click.command()
@click.option("--trace", type=ARTIFACT, required=True, help="Trace to read.")
@click.option("--output", type=OUTPUT, required=True, help="Directory of the vocab; created or replaced.")
@click.option(
    "--sampling-rate",
    type=SAMPLING_RATE,
    default=1.0,
    show_default=True,
    help="Fraction of the decisions to count, for less time; all need no more memory.",
)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Seed of the choice with --sampling-rate.")
def main(trace: Path, output: Path, sampling_rate: float, seed: int) -> None:
    """Compute the quantiles of each feature over all decisions of a trace.

    Writes <feature>.buckets, 1000 numbers each, one a line: what a policy normalises its inputs by.

    \b
    Example:
      mlgo vocab --trace runs/demo/trace --output runs/demo/vocab
    """
    from components.vocab.build import build  # needs pyarrow

    features = build(VocabConfig(trace, output, sampling_rate, seed))
    say(f"{display_path(output)}: {QUANTILES} quantiles of {features} features")


if __name__ == "__main__":
    run_step(main)
