"""The type of --recipe: a file, a URI, or the name of a recipe that comes with this project."""

from __future__ import annotations

from pathlib import Path

import click

from components.core.projects.recipe import recipe_place
from components.core.storage.fetch import fetch_file
from components.core.storage.uri import ObjectUri


class RecipeFile(click.ParamType):
    """Converts to the path of an existing recipe, whose content is not read yet."""

    name = "file|uri|name"

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> Path:
        place = recipe_place(str(value))
        return fetch_file(place) if isinstance(place, ObjectUri) else place


RECIPE = RecipeFile()
