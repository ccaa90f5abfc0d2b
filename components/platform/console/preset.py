"""Defines --preset: named defaults for a step's options, so that a pipeline passes one word to all its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import click

Preset = Literal["tiny", "demo", "full"]
PRESETS: tuple[str, ...] = get_args(Preset)
"""tiny only shows that everything works, demo takes twenty minutes, full trains for an hour on 2 cores."""


def preset_option(defaults: Mapping[str, Mapping[str, Any]]) -> Callable[[Any], Any]:
    """Return the --preset option for a click command.

    Args:
        defaults: preset -> parameter name -> value; options on the command line override them.
    """

    def choose(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
        if value:
            context.default_map = {**(context.default_map or {}), **defaults.get(value, {})}

    return click.option(
        "--preset",
        type=click.Choice(PRESETS),
        is_eager=True,
        expose_value=False,
        callback=choose,
        help="Named defaults for the options below: tiny, demo (20 minutes in total), full (an hour of training).",
    )
