"""--preset: other defaults for a step's options, by name, so that a pipeline passes one word to all of its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import click

Preset = Literal["tiny", "demo", "full"]
PRESETS: tuple[str, ...] = get_args(Preset)
"""tiny only shows that everything works, demo fits twenty minutes, full is an hour of training on 2 cores."""


def preset_option(defaults: Mapping[str, Mapping[str, Any]]) -> Callable[[Any], Any]:
    """The option of a click command. defaults: preset -> parameter's name -> value; options that are given win."""

    def choose(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
        if value:
            context.default_map = {**(context.default_map or {}), **defaults.get(value, {})}

    return click.option(
        "--preset", type=click.Choice(PRESETS), is_eager=True, expose_value=False, callback=choose,
        help="Other defaults for the options below: tiny, demo (20 minutes in all), full (an hour of training).",
    )  # fmt: skip
