"""Reads a build as `mlgo evaluation compare-builds` compares it: a build tree, the output of `mlgo shrink`, or a
measurement that compare-builds wrote, which needs the tree no longer.

build.json, the measurement:

    {"version": 1, "build": "build", "files": {"bin/app": {"kind": "program", "sizes": {"text": 1110, ...},
     "language": "c++", "machine": 62, "functions": {"main": 96, ...}}}}
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

import msgspec
from msgspec import Struct

from components.core.projects.flags.linked_files import find_binaries, matches
from components.core.projects.flags.section_sizes import MeasuredBinary, measure
from components.evaluation.projects.function_changes import function_sizes
from components.platform.console import Progress, say
from components.platform.errors import UserError
from components.platform.storage import read_manifest
from components.platform.storage.input_files import read_json, typed
from components.platform.storage.manifest import MANIFEST, require_artifact

BUILD_FILE = "build.json"
_BINARIES_FILE = "binaries.json"
_VERSION = 1
_SHRUNK_FILES = "files"
"""Directory in the output of `mlgo shrink` with what the build linked."""
_AGAIN = "measure the build again: mlgo evaluation compare-builds BUILD --output DIR"


@dataclass(frozen=True)
class MeasuredFile(MeasuredBinary):
    """Sizes of one program or library.

    Attributes:
        functions: bytes of each function, by mangled name; empty if the file is stripped.
    """

    functions: dict[str, int] = field(default_factory=dict)


class _Measurement(Struct, kw_only=True):
    version: int
    build: str
    files: dict[str, MeasuredFile]


@dataclass(frozen=True)
class Build:
    """The programs and libraries of a build.

    Attributes:
        path: what the user passed.
        name: name of the build directory that was measured.
        files: path relative to the build directory -> function that measures the file. It raises UserError for a
            damaged file.
        shrunk: whether `mlgo shrink` made it; its paths are relative to the source tree.
    """

    path: Path
    name: str
    files: Mapping[str, Callable[[], MeasuredFile]]
    shrunk: bool = False

    def below(self, directory: PurePosixPath) -> Build:
        """Return the files below a directory, named relative to it."""
        files = {
            PurePosixPath(name).relative_to(directory).as_posix(): measured
            for name, measured in self.files.items()
            if PurePosixPath(name).is_relative_to(directory)
        }
        return Build(self.path / _SHRUNK_FILES / directory, self.name, files)


def open_build(path: Path, globs: Sequence[str] = ()) -> Build:
    """List the programs and libraries of a build.

    Args:
        path: a build tree, an output of `mlgo shrink`, or an output of compare-builds.
        globs: only paths relative to the build directory that match one of these; all if empty.

    Raises:
        UserError: the path is none of these, or cannot be read.
    """
    if path.name in (BUILD_FILE, _BINARIES_FILE) and (path.parent / MANIFEST).is_file():
        raise UserError(f"{path} is a file of an output of compare-builds", f"pass the directory, {path.parent}")
    if path.is_file():
        raise UserError(
            f"{path} is a file, not a build", "pass two files, or two directories; --binary selects files of these"
        )
    kind = _artifact_kind(path)
    if kind == "comparison of binaries":
        return _read_measurement(path, globs)
    tree = path / _SHRUNK_FILES if kind == "smaller build" else path
    files = {name: partial(measure_file, place) for name, place in find_binaries(tree, globs)}
    return Build(path, path.absolute().name, files, kind == "smaller build")


def open_file(path: Path, name: str) -> Build:
    """Return a build of one program or library, under a name that both sides have."""
    return Build(path, path.absolute().parent.name, {name: partial(measure_file, path)})


def align(one: Build, other: Build) -> tuple[Build, Build]:
    """Let an output of `mlgo shrink` be named as the other build is: it has the paths of the whole source tree, but
    users keep a build directory, whose name may be another one."""
    return _align(one, other), _align(other, one)


def measure_files(build: Build, names: Collection[str]) -> dict[str, MeasuredFile]:
    """Measure files of a build; name and leave out damaged ones."""
    measured: dict[str, MeasuredFile] = {}
    if not names:
        return measured
    with Progress(f"measuring the binaries of {build.path}", len(names)) as progress:
        for name in names:
            try:
                measured[name] = build.files[name]()
            except UserError as error:
                say(f"left out: {error.problem}")
            progress.advance()
    return measured


def write_measurement(name: str, files: Mapping[str, MeasuredFile], directory: Path) -> None:
    """Write build.json to `directory`."""
    document = _Measurement(version=_VERSION, build=name, files=dict(files))
    (directory / BUILD_FILE).write_bytes(msgspec.json.encode(document) + b"\n")


def _read_measurement(path: Path, globs: Sequence[str]) -> Build:
    file = path / BUILD_FILE
    require_artifact(path, "comparison of binaries", verify_content=True)
    if not file.is_file():
        raise UserError(
            f"{path} compares two builds, but has no sizes of functions and files of one ({BUILD_FILE}): it is of "
            "compare-binaries, or of an earlier version",
            _AGAIN,
        )
    document = read_json(file, _AGAIN)
    if isinstance(document, dict) and document.get("version", _VERSION) != _VERSION:
        raise UserError(f"{file} is of version {document['version']}; this program reads {_VERSION}", _AGAIN)
    measurement = typed(document, _Measurement, file, "the measurement of a build", _AGAIN)
    files = {name: (lambda file=file: file) for name, file in measurement.files.items() if matches(name, globs)}
    return Build(path, measurement.build, files)


def measure_file(path: Path) -> MeasuredFile:
    binary = measure(path)
    try:
        functions = function_sizes(path)
    except UserError:
        functions = {}  # the sections are whole, the symbol table is not
    return MeasuredFile(functions=functions, **vars(binary))


def _artifact_kind(path: Path) -> str:
    """Return the kind of artifact that a directory is; "" if it is none."""
    if not (path / MANIFEST).is_file():
        return ""
    try:
        return read_manifest(path).kind
    except UserError:
        return ""  # another program's manifest.json


def _align(shrunk: Build, other: Build) -> Build:
    if not shrunk.shrunk or shrunk.files.keys() & other.files.keys():
        return shrunk
    directories = {parent for name in shrunk.files for parent in PurePosixPath(name).parents if parent.name}
    common = {
        directory: sum((directory / name).as_posix() in shrunk.files for name in other.files)
        for directory in sorted(directories)
    }
    best = max(common, key=lambda directory: common[directory], default=None)
    if best is None or common[best] == 0:
        return shrunk
    below = shrunk.below(best)
    say(f"comparing with {below.path}, which has the same files as {other.path}")
    return below
