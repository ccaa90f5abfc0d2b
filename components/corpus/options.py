"""Command-line options that commands of the corpus step share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from components.core import problems
from components.core.problems.problem import Problem
from components.core.projects.extraction_options import UNITS
from components.corpus.split import SplitConfig
from components.platform.console.number_types import FRACTION, FRACTION_BELOW_1, SEED
from components.platform.errors import UserError
from components.platform.storage.options import OUTPUT

PATH = click.Path(path_type=Path)
UNIT = click.Choice(UNITS)
PROBLEM = click.option(
    "--problem",
    type=click.Choice(problems.names()),
    default="inlining",
    show_default=True,
    help="Problem that the corpus is for; recipes are built at its optimization level.",
)


def split_options(command: Any) -> Any:
    """Add the options of SplitConfig to a command that writes a corpus."""
    default = SplitConfig()
    for option in (
        click.option("--seed", type=SEED, help=f"Random seed of the split. Default {default.seed}."),
        click.option(
            "--heldout-project",
            "heldout_projects",
            multiple=True,
            help="Hold out all modules of this project (the first folder of their names). Repeatable.",
        ),
        click.option(
            "--heldout-fraction",
            type=FRACTION,
            help=f"Fraction of other modules to hold out. Default {default.heldout_fraction}. 1: all, for a "
            "corpus that is only evaluated on.",
        ),
        click.option(
            "--validation-fraction",
            type=FRACTION_BELOW_1,
            help=f"Fraction of other modules that select the best checkpoint. Default {default.validation_fraction}.",
        ),
    ):
        command = option(command)
    return command


def output_option(command: Any) -> Any:
    """Add the option --output to a command."""
    return click.option("--output", type=OUTPUT, required=True, help="Directory of the new corpus.")(command)


def require_size_level(problem: Problem) -> None:
    """Check that programs can be units of a problem's corpus. UserError if they cannot.

    At other levels than those for size, lld compiles a program by passes that clang does not have.
    """
    if problem.optimization not in ("-Oz", "-Os"):
        raise UserError(
            f"--unit program is for problems of -Oz and -Os, and {problem.name} is compiled at {problem.optimization}",
            "pass --unit object",
        )
