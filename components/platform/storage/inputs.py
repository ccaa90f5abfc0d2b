"""The inputs of the running command: verified when it opens them, and unchanged until it has read them.

A step reads an artifact by path, in several processes, for minutes. Local directories have no versions, as those in
object storage have (object_storage/fetch.py). So the state of each file is recorded before its first use, and
compared when the step publishes what it made of it, and when it ends: whatever process read a file, in between it was
the same file. The options of commands (options.py) add the inputs.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.manifest import (
    MANIFEST,
    Manifest,
    differing_files,
    list_names,
    read_manifest,
    require_whole,
)
from components.platform.storage.uri import Location, ObjectUri, display_path, uri_of

FileState = tuple[int, int, int]
"""Inode, size in bytes, and time of modification in nanoseconds of a file."""
CONTAINS = "contains the input"
_META = "components.platform.storage.inputs"
_FOREIGN_FILES = (".o", ".bc", ".cmd", ".json", ".buckets")
"""Suffixes of what steps read in directories of other tools. A build's log, for example, may change meanwhile."""


@dataclass
class _Input:
    """A local input.

    Attributes:
        files: state of each file, by name, before the input was read.
        manifest: of an artifact; None for the files of other tools.
        whole: whether no output may lie in it.
        compared: whether `files` was compared after the input was read.
    """

    directory: Path
    files: dict[str, FileState]
    manifest: Manifest | None
    whole: bool
    compared: bool = False


class CommandInputs:
    """The inputs of one command."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._local: dict[Path, _Input] = {}
        self._uris: set[ObjectUri] = set()

    def add_uri(self, uri: ObjectUri) -> None:
        """Add an input in object storage. Its mirror belongs to one version and does not change."""
        self._uris.add(uri)

    def add(self, directory: Path, is_artifact: bool, whole: bool) -> None:
        """Add a local directory, and verify every file of an artifact.

        Args:
            is_artifact: False for a directory that other tools may have filled or a user edited: files that differ from
                a manifest there are named in a warning.
            whole: whether everything in the directory is the input, so that no output may lie in it, as none may in an
                artifact. False for a build tree.

        Raises:
            UserError: the artifact is damaged: names the files that differ from its manifest.
        """
        directory = directory.absolute()
        with self._lock:
            if directory in self._local:
                return
            try:
                manifest = read_manifest(directory) if (directory / MANIFEST).is_file() else None
            except UserError:
                if is_artifact:
                    raise
                manifest = None
            names = [MANIFEST, *(entry.name for entry in manifest.files)] if manifest else _foreign_files(directory)
            self._local[directory] = _Input(
                directory, _states(directory, names), manifest, whole or manifest is not None
            )
        if manifest is None:
            return
        if is_artifact:
            require_whole(manifest)
        elif differing := differing_files(manifest):
            say(
                f"warning: {directory} is read as it is; files that differ from its {MANIFEST}: {list_names(differing)}"
            )

    def require_unchanged(self, every: bool = True) -> None:
        """Raise UserError if a local input was replaced or modified since it was added.

        Args:
            every: False compares only inputs that were never compared: what was made of the others is published.
        """
        with self._lock:
            for one in self._local.values():
                if every or not one.compared:
                    self._require_same(one)
                    one.compared = True

    def overlap(self, output: Path) -> str:
        """Return how `output` overlaps with an input, "lies within the input DIR"; "" if it does not.

        It may lie within a build tree: of that nothing is replaced.
        """
        uri = uri_of(output)
        if uri is not None:
            for other in self._uris:
                if relation := _relation(f"{uri}/", f"{other}/"):
                    return f"{relation} {other}"
            return ""
        for one in self._local.values():
            if _is_at(output, one.directory):
                return f"is the input {one.directory}"
            if one.whole and any(_is_at(parent, one.directory) for parent in _real_parents(output)):
                return f"lies within the input {one.directory}"
            if any(_is_at(output, parent) for parent in _real_parents(one.directory)):
                return f"{CONTAINS} {one.directory}"
        return ""

    def _require_same(self, one: _Input) -> None:
        now = _states(one.directory, one.files)
        if now == one.files:
            return
        if one.manifest is not None and _same_content(one.directory, one.manifest):
            one.files = now  # copied, or made again with the same result
            return
        raise UserError(
            f"{display_path(one.directory)} was replaced or modified while it was read",
            "find out what writes there; then run the same command again",
        )


def command_inputs() -> CommandInputs | None:
    """Return the inputs of the running command; None outside of a command."""
    return _current() if _current is not None else None


def require_unchanged_inputs() -> None:
    """Raise UserError if an input of the running command was replaced or modified."""
    if (inputs := command_inputs()) is not None:
        inputs.require_unchanged()


_current: weakref.ref[CommandInputs] | None = None
"""Weak, because a command whose options are refused is never closed. Not click's context, which threads do not have."""


def add_input(location: Location, is_artifact: bool = True, whole: bool = False) -> None:
    """Add an input to the running command of click, if there is one. Args and raises as `CommandInputs.add`."""
    context = click.get_current_context(silent=True)
    if context is None:
        return
    root = context.find_root()
    inputs = root.meta.get(_META)
    if inputs is None:
        inputs = root.meta[_META] = root.with_resource(_until_end())
    if isinstance(location, ObjectUri):
        inputs.add_uri(location)
    elif (uri := uri_of(location)) is not None:
        inputs.add_uri(uri)
    elif location.is_dir():
        inputs.add(location, is_artifact, whole)


@contextmanager
def _until_end() -> Iterator[CommandInputs]:
    """Yield the inputs of a command. UserError if one has changed when the command ends or fails."""
    global _current
    inputs = CommandInputs()
    _current = weakref.ref(inputs)
    try:
        yield inputs
    finally:
        _current = None
        failure = sys.exception()
        if isinstance(failure, Exception | None):  # a failure may come from reading two versions
            inputs.require_unchanged(every=failure is not None)


def _relation(output: str, other: str) -> str:
    if output == other:
        return "is the input"
    if output.startswith(other):
        return "lies within the input"
    return CONTAINS if other.startswith(output) else ""


def _real_parents(path: Path) -> Iterator[Path]:
    yield from Path(os.path.realpath(path)).parents


def _is_at(path: Path, directory: Path) -> bool:
    """Return whether both are the same existing directory, also by way of links and mounts."""
    try:
        return os.path.samefile(path, directory)
    except OSError:
        return False


def _foreign_files(directory: Path) -> list[str]:
    return [
        Path(folder, name).relative_to(directory).as_posix()
        for folder, _folders, files in os.walk(directory)
        for name in files
        if name.endswith(_FOREIGN_FILES)
    ]


def _states(directory: Path, names: Iterator[str] | list[str] | dict[str, FileState]) -> dict[str, FileState]:
    """Return the state of each named file; zeros for one that is missing."""
    states = {}
    for name in names:
        try:
            status = os.stat(directory / name)
            states[name] = (status.st_ino, status.st_size, status.st_mtime_ns)
        except OSError:
            states[name] = (0, 0, 0)
    return states


def _same_content(directory: Path, manifest: Manifest) -> bool:
    try:
        now = read_manifest(directory)
    except UserError:
        return False
    return now.files == manifest.files and not differing_files(now)
