"""Object files and the names of their modules; reader of compilation databases."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.core.formats.names import is_utf8
from components.core.projects.compile_commands import directory_of, output_of
from components.core.projects.compiler_command import NoObjectError, NotACompileError
from components.corpus.outcome_kind import OutcomeKind
from components.platform.console.escape import escape_line
from components.platform.errors import UserError
from components.platform.storage.input_files import MissingFile, read_json

_ASSEMBLY = (".s", ".S", ".sx", ".asm")
_PARENT = "__"
_MAX_SHOWN = 300

Left = list[tuple[str, str, str]]
"""(name, kind, detail) of each entry of an input without a usable object, see report.py."""


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """An object file and the name of its module.

    Attributes:
        path: of the object file.
        name: of the module: a relative path without "..", with the object's suffix.
        assembly: whether it was assembled from an assembly file and thus has no bitcode.
        directory: directory that relative paths in its arguments start from.
    """

    path: str
    name: str
    assembly: bool = False
    directory: str = ""


def locate_object(directory: str, output: str, base: Path | None = None, source: str = "") -> ObjectFile | None:
    """Return the object of a command, or None if the path of its module would be outside of the corpus.

    As in mlgo-utils, a module's name is the object as the command spells it, relative to the command's directory; with
    `base` it is the object's path relative to that directory.

    Args:
        base: directory that module names are relative to.

    Raises:
        UserError: `output` is not a path, or not UTF-8.
    """
    try:
        if b"\0" in os.fsencode(output) + os.fsencode(directory):
            raise ValueError
    except ValueError:  # also UnicodeEncodeError, for a lone surrogate, which only JSON can contain
        problem = f"{os.path.join(directory, output)!r} is not a path"
        raise UserError(problem, "regenerate the input with the build system") from None
    path = os.path.join(directory, output)
    name = output
    if base is not None:
        name = os.path.relpath(path, base)
    elif os.path.isabs(output):
        name = os.path.relpath(output, directory or None)
    name = os.path.normpath(name) if ".." in name else name
    if name.startswith("../") or name == "..":
        return None
    if not is_utf8(name):
        raise UserError(f"{path!r} is not UTF-8, as module names must be", "rename the file and build again")
    return ObjectFile(path, name, source.endswith(_ASSEMBLY), directory)


def deduplicate(objects: Iterable[ObjectFile]) -> tuple[list[ObjectFile], list[tuple[ObjectFile, ObjectFile]]]:
    """Return the objects without repetitions: a module that is listed twice would be trained on twice.

    Args:
        where: file that lists the objects, for errors.

    Raises:
        UserError: two different objects have the same module name.
    """
    by_name: dict[str, ObjectFile] = {}
    pairs = [(by_name.setdefault(os.path.normpath(item.name), item), item) for item in objects]
    repeated = [pair for pair in pairs if os.path.abspath(pair[0].path) != os.path.abspath(pair[1].path)]
    return list(by_name.values()), repeated


def read_compile_commands(path: Path, base: Path | None = None) -> tuple[list[ObjectFile], Left]:
    """Return the objects of a compile_commands.json, in its order, and the entries that make none.

    Modules are named as in mlgo-utils: by the object as the command spells it. Where this would give two objects the
    same name (recursive make), all names are relative to the directory that has the commands' directories. Objects
    outside of that directory have "__" for each ".." in their names, as CMake writes it.

    Args:
        base: directory that names are relative to instead; objects outside of it are left out.

    Raises:
        UserError: the file is not a compilation database.
    """
    outputs: list[tuple[str, str, str]] = []
    left: Left = []
    for number, entry in enumerate(_read(path)):
        name = f"entry {number}"
        try:
            if not isinstance(entry, dict):
                raise NoObjectError("it is not an object of JSON")
            source = entry["file"] if isinstance(entry.get("file"), str) else ""
            name = _shorten(source or name)
            directory = directory_of(entry, path)
            output = output_of(entry, directory)
            if locate_object(directory, output, base) is None and base is not None:
                name = _shorten(os.path.join(directory, output))
                left.append((name, OutcomeKind.OUTSIDE, f"it lies outside of {base}"))
            else:
                outputs.append((directory, output, source))
        except NoObjectError as error:
            kind = OutcomeKind.NOT_A_COMPILE if isinstance(error, NotACompileError) else OutcomeKind.NO_OUTPUT
            left.append((name, kind, _shorten(str(error))))
        except UserError as error:
            left.append((name, OutcomeKind.NO_OUTPUT, _shorten(error.problem)))
    objects = [_make_object(*item, base) for item in outputs]
    if base is None and len({item.name for item in objects}) < len({os.path.abspath(item.path) for item in objects}):
        common = Path(os.path.commonpath([directory for directory, _output, _source in outputs]))
        objects = [_make_object(*item, common) for item in outputs]
    objects, repeated = deduplicate(objects)
    left += [
        (item.path, OutcomeKind.NO_OUTPUT, f"{first.path} has the same module name, {item.name}")
        for first, item in repeated
    ]
    return objects, left


def _shorten(text: str) -> str:
    """Return a name or message from a database, which may hold any character, for a report."""
    return escape_line(text[:_MAX_SHOWN])


def _make_object(directory: str, output: str, source: str, base: Path | None) -> ObjectFile:
    """Return the object of a command; for an object outside of the base, with "__" for each ".." in its name."""
    item = locate_object(directory, output, base, source)
    if item is not None:
        return item
    path = os.path.join(directory, output)
    name = os.path.relpath(path, base or directory).replace("../", f"{_PARENT}/")
    return ObjectFile(path, name, source.endswith(_ASSEMBLY), directory)


def _read(path: Path) -> list[Any]:
    remedy = "configure the project with -DCMAKE_EXPORT_COMPILE_COMMANDS=ON and pass the file in its build directory"
    try:
        entries = read_json(path, remedy)
    except MissingFile:
        raise UserError(f"no compilation database at {path}: no such file", remedy) from None
    if not isinstance(entries, list):
        raise UserError(f"{path} is not a compilation database: not a list", remedy)
    if not entries:
        raise UserError(f"{path} is empty: it lists no compile command", remedy)
    return entries
