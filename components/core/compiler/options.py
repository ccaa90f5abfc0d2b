"""Command-line options of every step that compiles modules of a corpus."""

from __future__ import annotations

import click

ALLOW_CC1_OPTION = click.option(
    "--allow-cc1-option",
    "allowed_options",
    metavar="NAME",
    multiple=True,
    help="Replay a recorded option that is refused by default, by its name in the error message; may be repeated. Such "
    "options can run code: use this only for a corpus whose author you trust.",
)
