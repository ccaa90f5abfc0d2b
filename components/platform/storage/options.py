"""Click types of options that name a path, file:///PATH, gs://BUCKET/PATH, s3://BUCKET/PATH or an archive on the web.

Each converts to a local path. Inputs in object storage are downloaded during conversion, local ones are verified
(components.platform.storage.inputs); `publish` uploads outputs. A command whose work runs elsewhere only computes the
paths: see `skip_fetch`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import click

from components.platform.errors import UserError
from components.platform.storage.downloads.archive import fetch_archive, is_archive_url
from components.platform.storage.inputs import add_input
from components.platform.storage.object_storage.fetch import (
    fetch,
    fetch_file,
    fetch_files_outside_artifacts,
    fetch_tree,
)
from components.platform.storage.uri import REMOTE_SCHEMES, USAGE, ObjectUri, Words, mirror, parse_location

_SKIP_FETCH = "components.platform.storage.options.skip_fetch"


def skip_fetch(context: click.Context, why: str) -> None:
    """Require places in object storage for this command from here on; convert them to mirrors without downloading.

    Call it from an eager option.

    Args:
        why: reason that local places are refused, for the error: "a RayJob reads object storage only".
    """
    context.meta[_SKIP_FETCH] = why


class LocationType(click.ParamType):
    """Converts the text of an option to a path.

    Args:
        name: the metavar, in lower case.
        bring: returns the local path of a URI in object storage.
        directory: whether it is a directory to read: "artifact", whose content is verified; "any", which other tools
            may have filled; "whole", the same, but everything in it is read, so that no output may lie in it.
    """

    def __init__(
        self, name: str, bring: Callable[[ObjectUri], Path], directory: Literal["artifact", "any", "whole", ""] = ""
    ) -> None:
        self.name = name
        self._bring = bring
        self._directory = directory

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> Path:
        why = context.meta.get(_SKIP_FETCH, "") if context else ""
        if self._directory and is_archive_url(str(value)) and not why:
            value = fetch_archive(str(value))
        location = value if isinstance(value, Path) else parse_location(str(value))
        if why and not (isinstance(location, ObjectUri) and location.scheme in REMOTE_SCHEMES):
            option = parameter.opts[0] if parameter else self.name
            raise UserError(f"{option} {value} is on this machine, but {why}", f"use {option} {USAGE}")
        if self._directory:
            add_input(location, self._directory == "artifact", self._directory == "whole")
        return (mirror(location) if why else self._bring(location)) if isinstance(location, ObjectUri) else location


class ArtifactOr(click.ParamType):
    """Converts one of the given words to itself (a str), and anything else to the Path of an artifact or `kind`.

    The Path never equals a word: see `Words.path`.
    """

    name = "artifact"

    def __init__(self, *words: str, kind: LocationType | None = None) -> None:
        self.words, self._kind = Words(words), kind or ARTIFACT

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return "WORD|...|DIR|URI", with the words as users type them."""
        return "|".join([*self.words.words, self._kind.name.upper()])

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> Path | str:
        if isinstance(value, str) and value in self.words:
            return value
        converted = self.words.path(self._kind.convert(value, parameter, context))
        # A mistyped word; the step would miss its directory only later, and not know the words.
        if isinstance(value, str) and "/" not in value and not converted.exists():
            option = parameter.opts[0] if parameter else self.name
            raise UserError(f"{option} {value}: there is no such file or directory", f"pass it, or {self._choice()}")
        return converted

    def _choice(self) -> str:
        words = self.words.words
        return words[0] if len(words) == 1 else "one of " + ", ".join(words)


class ProgramType(click.ParamType):
    """Converts the name of a program on the PATH, or a path with a slash, to an absolute path."""

    name = "name|path"

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> Path:
        # As text: Path would make ./NAME a NAME.
        program = shutil.which(str(value))
        if program is None:
            option = parameter.opts[0] if parameter else self.name
            raise UserError(f"{option} {value} is not a program that can be executed", "check the name or the path")
        return Path(program).absolute()


PROGRAM = ProgramType()
ARTIFACT = LocationType("dir|uri", fetch, "artifact")
OUTPUT = LocationType("dir|uri", mirror)
"""An artifact to write; nothing is fetched."""
WORK_DIR = LocationType("dir|uri", mirror)
"""A directory in which artifacts such as checkpoints are added and removed; the step fetches what it needs from it."""
UNMANAGED_FILES = LocationType("dir|uri", fetch_files_outside_artifacts)
"""The files in such a directory that belong to no artifact, to read."""
TREE = LocationType("dir|uri", fetch_tree, "any")
"""An artifact, or a folder that another tool filled; without a manifest nothing shows whether it is complete."""
WHOLE_TREE = LocationType("dir|uri", fetch_tree, "whole")
"""The same where all files in it are the input: an output there would be among them the next time."""
FILE = LocationType("file|uri", fetch_file)
