"""Command-line options shared by several commands of mlgo."""

from __future__ import annotations

from pathlib import Path

import click

from components.platform.errors import UserError
from components.platform.storage.uri import USAGE, in_object_storage, parse_location


class RunDirectory(click.ParamType):
    """Convert to the absolute path of a run's directory; refuse a URI rather than take it for a path."""

    name = "directory"

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> Path:
        if in_object_storage(str(value)):
            raise UserError(
                f"--output {value}: a run keeps its state and logs in a local directory",
                f"pass a directory; for artifacts in object storage: mlgo pipeline run --pipeline-root {USAGE}",
            )
        location = value if isinstance(value, Path) else parse_location(str(value))
        assert isinstance(location, Path)
        return location.absolute()


RUN_DIRECTORY = RunDirectory()
OUTPUT = click.option(
    "--output",
    type=RUN_DIRECTORY,
    required=True,
    help="Directory of a run, new, empty or used before: logs, state, and, without --pipeline-root, artifacts.",
)
PIPELINE_ROOT = click.option("--pipeline-root", default="", metavar="URI", help=f"{USAGE} of the artifacts.")
RUNNER = click.option(
    "--runner",
    type=click.Choice(["process", "docker"]),
    default="process",
    show_default=True,
    help="process: run steps as local processes; docker: run steps in their images.",
)
PARAMS = click.option("--param", "params", multiple=True, metavar="NAME=VALUE", help="Pipeline parameter; repeatable.")
IMAGES = click.option(
    "--images",
    default="build/images.json",
    show_default=True,
    metavar="FILE|NAME=REFERENCE,...",
    help="Images of the steps: a file that `mlgo images` wrote, or references with digests, toolchain=...,training=...",
)
