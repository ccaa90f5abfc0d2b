"""The command-line option of every step that compiles modules of a corpus."""

from __future__ import annotations

import click

ALLOW_CC1_OPTION = click.option(
    "--allow-cc1-option",
    "allowed_options",
    metavar="NAME",
    multiple=True,
    help="Replay a recorded option that is refused otherwise, by the name that the error has; may be repeated. Such "
    "options can run code: only for a corpus whose maker you trust.",
)
