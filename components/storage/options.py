"""Types of command-line options that name a place: a path, file:///PATH or gs://BUCKET/PATH.

Each hands a local path to the step. What is read from object storage has been downloaded by then; what is written to
it is uploaded by `publish`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from components.storage.fetch import fetch, fetch_file, fetch_loose, fetch_tree
from components.storage.uri import GsUri, mirror, parse_place


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
        return self._bring(place) if isinstance(place, GsUri) else place


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
