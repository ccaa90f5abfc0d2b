"""The type of --recipe: a file, a URI, or the name of a recipe that comes with this project."""

from __future__ import annotations

from pathlib import Path

import click

from components.projects.recipe import PACKAGED
from components.storage.options import FILE


class RecipeFile(click.ParamType):
    """Converts to the path of a recipe; whether there is one, reading it tells."""

    name = "file|uri|name"

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> Path:
        packaged = PACKAGED / f"{value}.yaml"
        if isinstance(value, str) and "/" not in value and not Path(value).exists() and packaged.is_file():
            return packaged
        return FILE.convert(value, parameter, context)


RECIPE = RecipeFile()
