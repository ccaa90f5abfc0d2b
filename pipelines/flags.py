"""Command-line options that several of mlgo's commands share."""

from __future__ import annotations

from pathlib import Path

import click

from components.console import UserError
from components.storage.uri import SCHEME, parse_place


class RunDirectory(click.ParamType):
    """Converts to the absolute path of a run's directory; a URI is refused before a path is made of it."""

    name = "directory"

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> Path:
        if str(value).startswith(SCHEME):
            raise UserError(
                f"--output {value}: a run keeps its state and logs on this machine",
                "pass a directory; for artifacts in object storage: mlgo pipeline run --pipeline-root gs://BUCKET/PATH",
            )
        place = value if isinstance(value, Path) else parse_place(str(value))
        assert isinstance(place, Path)
        return place.absolute()


RUN_DIRECTORY = RunDirectory()
OUTPUT = click.option(
    "--output", type=RUN_DIRECTORY, required=True,
    help="Directory of the run: logs and state, and artifacts where there is no --pipeline-root.",
)  # fmt: skip
PIPELINE_ROOT = click.option("--pipeline-root", default="", metavar="URI", help="gs://BUCKET/PATH for the artifacts.")
RUNNER = click.option(
    "--runner", type=click.Choice(["process", "docker"]), default="process", show_default=True,
    help="process: the steps' commands, here; docker: the steps' images.",
)  # fmt: skip
PARAMS = click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="Of the pipeline; repeatable.")
IMAGES = click.option(
    "--images", type=click.Path(path_type=Path, dir_okay=False), default=Path("build/images.json"), show_default=True,
    help="What `mlgo images build` wrote.",
)  # fmt: skip
