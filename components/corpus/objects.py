"""Object files, the names of their modules, and which of them a compilation database speaks of."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.console import UserError
from components.formats.names import is_utf8
from components.projects.compile_commands import output_of
from components.storage.input_files import MissingFile, read_json

_ASSEMBLY = (".s", ".S", ".sx", ".asm")


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """An object file and the name that its module gets: a relative path without "..", the object's own suffix kept.

    assembly: it was made from an assembly file, so that nobody expects bitcode in it.
    directory: where relative paths in its arguments start.
    """

    path: str
    name: str
    assembly: bool = False
    directory: str = ""


def object_at(directory: str, spelled: str, base: Path | None = None, source: str = "") -> ObjectFile | None:
    """The object that a command which ran in `directory` calls `spelled`; None if its name would leave the corpus.

    As in mlgo-utils a module's name is the object as the command spells it, relative to the command's directory;
    with `base` it is the object's path relative to that directory. Raises `UserError` for what is no path.
    """
    try:
        if b"\0" in os.fsencode(spelled) + os.fsencode(directory):
            raise ValueError
    except ValueError:  # a lone surrogate, which only JSON can spell, is one, too
        what = f"{os.path.join(directory, spelled)!r} is not a path"
        raise UserError(what, "let the build system write the input again") from None
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
        raise UserError(f"{path!r} is not UTF-8, as names of modules are", "rename what is not, and build again")
    return ObjectFile(path, name, source.endswith(_ASSEMBLY), directory)


def distinct(objects: Iterable[ObjectFile], where: Path) -> list[ObjectFile]:
    """The objects without those that repeat an earlier one: a module that is listed twice would be trained on twice.

    Raises `UserError`, which names `where` the objects come from, if two would get one name.
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
    """The objects of a compile_commands.json, in its order, and the commands that name no output.

    Raises `UserError` for a file that is not a compilation database, objects outside `base`, absolute objects
    outside the command's directory, and two objects that would get one name.
    """
    objects: list[ObjectFile] = []
    without_output: list[str] = []
    for number, entry in enumerate(_read(path)):
        if not isinstance(entry, dict) or not isinstance(entry.get("directory"), str):
            raise UserError(f"{path}: entry {number} has no directory", "let CMake write the file again")
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
    remedy = "configure the project with -DCMAKE_EXPORT_COMPILE_COMMANDS=ON and name the file in its build directory"
    try:
        entries = read_json(path, remedy)
    except MissingFile:
        raise UserError(f"no compilation database at {path}: no such file", remedy) from None
    if not isinstance(entries, list):
        raise UserError(f"{path} is not a compilation database: not a list", remedy)
    if not entries:
        raise UserError(f"{path} is empty: it lists no compile command", remedy)
    return entries
