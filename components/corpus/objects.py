"""Which object files a compilation database speaks of."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.console import UserError
from components.projects.compile_commands import output_of

_ASSEMBLY = (".s", ".S", ".sx", ".asm")


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """An object file and the name that its module gets: a relative path without "..", the object's own suffix kept.

    assembly: it was made from an assembly file, so that nobody expects bitcode in it.
    """

    path: str
    name: str
    assembly: bool = False


def from_compile_commands(path: Path, base: Path | None = None) -> tuple[list[ObjectFile], list[str]]:
    """The objects of a compile_commands.json, in its order, and the commands that name no output.

    As in mlgo-utils a module's name is the object as the command spells it, relative to the command's directory;
    with `base` it is the object's path relative to that directory. An entry that repeats an earlier object is
    left out: a module that is listed twice would be trained on twice.

    Raises `UserError` for a file that is not a compilation database, objects outside `base`, absolute objects
    outside the command's directory, and two objects that would get one name.
    """
    entries = _read(path)
    objects: dict[str, ObjectFile] = {}
    without_output: list[str] = []
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("directory"), str):
            raise UserError(f"{path}: entry {number} has no directory", "let CMake write the file again")
        output = output_of(entry)
        if output is None:
            without_output.append(str(entry.get("file", f"entry {number}")))
            continue
        found = _object(entry, output, base)
        known = objects.setdefault(found.name, found)
        if os.path.abspath(known.path) != os.path.abspath(found.path):
            raise UserError(
                f"{path}: {known.path} and {found.path} would both become the module {found.name}",
                "pass --obj-base-dir with the directory that holds both objects",
            )
    return list(objects.values()), without_output


def _read(path: Path) -> list[Any]:
    remedy = "configure the project with -DCMAKE_EXPORT_COMPILE_COMMANDS=ON and name the file in its build directory"
    try:
        entries = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"no compilation database at {path}: no such file", remedy) from None
    except IsADirectoryError:
        raise UserError(f"{path} is a directory, not a compile_commands.json", remedy) from None
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}", remedy) from None
    if not isinstance(entries, list):
        raise UserError(f"{path} is not a compilation database: not a list", remedy)
    if not entries:
        raise UserError(f"{path} is empty: it lists no compile command", remedy)
    return entries


def _object(entry: dict[str, Any], output: str, base: Path | None) -> ObjectFile:
    directory = entry["directory"]
    path = os.path.join(directory, output)
    name = output
    if base is not None:
        name = os.path.relpath(path, base)
    elif os.path.isabs(output):
        name = os.path.relpath(output, directory)
    name = os.path.normpath(name) if ".." in name else name
    if name.startswith("../") or name == "..":
        where = f"{base}" if base is not None else f"the directory of its command, {directory}"
        remedy = "pass --obj-base-dir with a directory that holds all objects"
        raise UserError(f"the object {path} lies outside of {where}", remedy)
    return ObjectFile(path, name, str(entry.get("file", "")).endswith(_ASSEMBLY))
