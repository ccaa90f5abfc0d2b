"""Reads each kind of input of mlgo corpus extract to a list of objects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from components.corpus.sources.folder import SAVED_MODULE_SUFFIX, find_objects
from components.corpus.sources.link import read_aquery, read_params
from components.corpus.sources.objects import Left, ObjectFile, read_compile_commands
from components.corpus.sources.project_name import name_project

InputType = Literal["json", "params", "directory", "bazel_aquery", "saved"]
"""The names of mlgo-utils' extract_ir, and "saved": a directory in which lld saved the modules of local ThinLTO."""


@dataclass(frozen=True)
class Input:
    """Objects of an input.

    Attributes:
        project: name of the project, see `name_project`.
        left: (name, kind, detail) of each entry without a usable object.
    """

    project: str
    objects: list[ObjectFile]
    left: Left


def read_input(kind: InputType, path: Path, base: Path | None = None) -> Input:
    """Return the objects that `path` lists or holds. UserError if the input is not of this kind, or has no object.

    Args:
        base: for params and bazel_aquery, the directory that the linker ran in; for the other kinds, the directory that
            module names are relative to.
    """
    if kind == "json":
        objects, left = read_compile_commands(path, base)
        return Input(name_project(path.absolute().parent), objects, left)
    if kind in ("directory", "saved"):
        objects = find_objects(path, base, SAVED_MODULE_SUFFIX if kind == "saved" else ".o")
        return Input(name_project(path), objects, [])
    objects, left = (read_params if kind == "params" else read_aquery)(path, base)
    return Input(name_project(base or Path()), objects, left)
