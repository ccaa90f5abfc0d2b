"""Types of command-line options that name a place: a path, file:///PATH or gs://BUCKET/PATH.

Each hands a local path to the step. What is read from object storage has been downloaded by then; what is written to
it is uploaded by `publish`. A command that has its work done elsewhere asks for the paths alone: `leave_in_storage`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from components.console import UserError
from components.storage.fetch import fetch, fetch_file, fetch_loose, fetch_tree
from components.storage.uri import GsUri, mirror, parse_place

_LEFT = "components.storage.options.left"


def leave_in_storage(context: click.Context, why: str) -> None:
    """From here on places of this command must be gs:// URIs; they become their mirrors, and nothing is downloaded.

    To be called by an eager option. why: what a place on this machine is told, "a RayJob reads object storage only".
    """
    context.meta[_LEFT] = why


class Place(click.ParamType):
    """Converts the text of an option to a path.

    Args:
        name: the metavar, in lower case.
        bring: makes a gs:// URI's local path.
    """

    def __init__(self, name: str, bring: Callable[[GsUri], Path]) -> None:
        self.name = name
        self._bring = bring

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> Path:
        place = value if isinstance(value, Path) else parse_place(str(value))
        why = context.meta.get(_LEFT, "") if context else ""
        if why and not isinstance(place, GsUri):
            option = parameter.opts[0] if parameter else self.name
            raise UserError(f"{option} {value} is a place on this machine, and {why}", f"{option} gs://BUCKET/PATH")
        return (mirror(place) if why else self._bring(place)) if isinstance(place, GsUri) else place


class ArtifactOr(click.ParamType):
    """Converts one of some words to itself, a str, and all else to the Path of an artifact."""

    name = "artifact"

    def __init__(self, *words: str) -> None:
        self._words = words

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> Path | str:
        return value if isinstance(value, str) and value in self._words else ARTIFACT.convert(value, parameter, context)


ARTIFACT = Place("dir|uri", fetch)
"""An artifact that is read."""
OUTPUT = Place("dir|uri", mirror)
"""An artifact that is written; nothing is fetched."""
WORK_DIR = Place("dir|uri", mirror)
"""A directory in which artifacts come and go, such as checkpoints; the step fetches what it wants of it."""
LOOSE = Place("dir|uri", fetch_loose)
"""What lies in such a directory beside the artifacts, to be read."""
TREE = Place("dir|uri", fetch_tree)
"""An artifact, or a folder that another tool filled: without a manifest, so nothing tells whether it is whole."""
FILE = Place("file|uri", fetch_file)
"""A single file that is read."""
