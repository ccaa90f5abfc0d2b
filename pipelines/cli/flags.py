"""Command-line options shared by several commands of mlgo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from components.platform.errors import UserError
from components.platform.storage.input_files import parse_yaml, read_text
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


class ParametersFile(click.ParamType):
    """Convert to the parameters in a YAML file, by name, each as text as on the command line."""

    name = "file"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> dict[str, str]:
        remedy = "write a line NAME: VALUE for each parameter; one alone is --param NAME=VALUE"
        documents = parse_yaml(read_text(Path(value), remedy), str(value), remedy, as_text=True)
        if len(documents) != 1 or not isinstance(documents[0], dict):
            raise UserError(f"--params {value} is not one mapping of parameters to values", remedy)
        for name, text in documents[0].items():
            if not isinstance(name, str) or not isinstance(text, str):
                raise UserError(f"--params {value}: the value of {name} is a list or a mapping, not text", remedy)
        return dict(documents[0])


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
PARAMS_FILE = click.option(
    "--params",
    "params_file",
    type=ParametersFile(),
    metavar="FILE",
    help="YAML file with a line NAME: VALUE for each parameter; --param wins.",
)
IMAGES = click.option(
    "--images",
    default="build/images.json",
    show_default=True,
    metavar="FILE|NAME=REFERENCE,...",
    help="Images of the steps: a file that `mlgo images` wrote, or references with digests, toolchain=...,training=...",
)
