"""Command-line options shared by several commands of mlgo."""

from __future__ import annotations

from pathlib import Path

import click

from components.platform.errors import UserError
from components.platform.storage.input_files import parse_yaml, read_text
from components.platform.storage.uri import USAGE, in_object_storage, parse_location


def run_directory(text: str) -> Path:
    """Convert to the absolute path of a run's directory; refuse a URI rather than take it for a path."""
    if in_object_storage(text):
        raise UserError(
            f"--output {text}: a run keeps its state and logs in a local directory",
            f"pass a directory; for artifacts in object storage: mlgo pipeline run --pipeline-root {USAGE}",
        )
    location = parse_location(text)
    assert isinstance(location, Path)
    return location.absolute()


def read_parameters(path: str) -> dict[str, str]:
    """Return the parameters in a YAML file, by name, each as text as on the command line."""
    remedy = "write a line NAME: VALUE for each parameter; one alone is --param NAME=VALUE"
    documents = parse_yaml(read_text(Path(path), remedy), path, remedy, as_text=True)
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise UserError(f"--params {path} is not one mapping of parameters to values", remedy)
    for name, text in documents[0].items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise UserError(f"--params {path}: the value of {name} is a list or a mapping, not text", remedy)
    return dict(documents[0])


OUTPUT = click.option(
    "--output",
    type=run_directory,
    metavar="DIRECTORY",
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
    type=read_parameters,
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
