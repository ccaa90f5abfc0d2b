"""Options that several commands of the corpus step have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from components.console.number_types import FRACTION, SEED
from components.corpus.split import SplitConfig
from components.storage.options import OUTPUT

PATH = click.Path(path_type=Path)


def split_options(command: Any) -> Any:
    """The flags of a SplitConfig, on every command that writes a corpus."""
    default = SplitConfig()
    for option in (
        click.option("--seed", type=SEED, help=f"Another seed, another split. Default {default.seed}."),
        click.option(
            "--heldout-project", "heldout_projects", multiple=True,
            help="Hold out all modules of this project (the first folder of their names). Repeatable.",
        ),
        click.option(
            "--heldout-fraction", type=FRACTION, help=f"Held out of the rest. Default {default.heldout_fraction}."
        ),
        click.option(
            "--validation-fraction", type=FRACTION,
            help=f"Chooses the best checkpoint. Default {default.validation_fraction}.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def output_option(command: Any) -> Any:
    return click.option("--output", type=OUTPUT, required=True, help="Directory of the new corpus.")(command)
