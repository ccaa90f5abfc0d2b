"""Object files and the names of their modules; reader of compilation databases."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.core.console import UserError
from components.core.formats.names import is_utf8
from components.core.projects.compile_commands import output_of
from components.core.storage.input_files import MissingFile, read_json

_ASSEMBLY = (".s", ".S", ".sx", ".asm")


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


def object_at(directory: str, spelled: str, base: Path | None = None, source: str = "") -> ObjectFile | None:
    """Return the object of a command, or None if the path of its module would be outside of the corpus.

    As in mlgo-utils, a module's name is the object as the command spells it, relative to the command's directory; with
    `base` it is the object's path relative to that directory.

    Args:
        directory: directory that the command ran in.
        spelled: the object, as in the command.
        base: directory that module names are relative to.
        source: the source file, if known.

    Raises:
        UserError: `spelled` is not a path, or not UTF-8.
    """
    try:
        if b"\0" in os.fsencode(spelled) + os.fsencode(directory):
            raise ValueError
    except ValueError:  # also UnicodeEncodeError, for a lone surrogate, which only JSON can contain
        problem = f"{os.path.join(directory, spelled)!r} is not a path"
        raise UserError(problem, "regenerate the input with the build system") from None
    path = os.path.join(directory, spelled)
    name = spelled
    if base is not None:
        name = os.path.relpath(path, base)
    elif os.path.isabs(spelled):
        name = os.path.relpath(spelled, directory or None)
    name = os.path.normpath(name) if ".." in name else name
    if name.startswith("../") or name == "..":
        return None
    if not is_utf8(name):
        raise UserError(f"{path!r} is not UTF-8, as module names must be", "rename the file and build again")
    return ObjectFile(path, name, source.endswith(_ASSEMBLY), directory)


def distinct(objects: Iterable[ObjectFile], where: Path) -> list[ObjectFile]:
    """Return the objects without repetitions: a module that is listed twice would be trained on twice.

    Args:
        objects: to deduplicate.
        where: file that lists the objects, for errors.

    Raises:
        UserError: two different objects have the same module name.
    """
    known: dict[str, ObjectFile] = {}
    for item in objects:
        first = known.setdefault(os.path.normpath(item.name), item)
        if os.path.abspath(first.path) != os.path.abspath(item.path):
            raise UserError(
                f"{where}: {first.path} and {item.path} would both become the module {item.name}",
                "pass --obj-base-dir with the directory that holds both objects",
            )
    return list(known.values())


def from_compile_commands(path: Path, base: Path | None = None) -> tuple[list[ObjectFile], list[str]]:
    """Return the objects of a compile_commands.json, in its order, and the sources of commands without an output.

    Raises:
        UserError: the file is not a compilation database, an object lies outside of `base`, an absolute object lies
            outside of its command's directory, or two objects have the same module name.
    """
    objects: list[ObjectFile] = []
    without_output: list[str] = []
    for number, entry in enumerate(_read(path)):
        if not isinstance(entry, dict) or not isinstance(entry.get("directory"), str):
            raise UserError(f"{path}: entry {number} has no directory", "regenerate the file with CMake")
        output = output_of(entry)
        if output is None:
            without_output.append(str(entry.get("file", f"entry {number}")))
            continue
        directory = entry["directory"]
        found = object_at(directory, output, base, str(entry.get("file", "")))
        if found is None:
            where = f"{base}" if base is not None else f"the directory of its command, {directory}"
            remedy = "pass --obj-base-dir with a directory that holds all objects"
            raise UserError(f"the object {os.path.join(directory, output)} lies outside of {where}", remedy)
        objects.append(found)
    return distinct(objects, path), without_output


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
