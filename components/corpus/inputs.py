"""What can be extracted from: each kind of input, read to a list of objects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from components.corpus.folder import from_directory, from_saved
from components.corpus.link import from_aquery, from_params
from components.corpus.objects import ObjectFile, from_compile_commands
from components.corpus.report import NO_OUTPUT, OUTSIDE

InputType = Literal["json", "params", "directory", "bazel_aquery", "saved"]
"""As mlgo-utils' extract_ir calls them; and "saved": a directory in which lld saved the modules of local ThinLTO."""
INPUT_TYPES: tuple[InputType, ...] = ("json", "params", "directory", "bazel_aquery")


@dataclass(frozen=True)
class Input:
    """The objects of an input. project: what the report calls it. left: (name, kind, detail) of what is no object."""

    project: str
    objects: list[ObjectFile]
    left: list[tuple[str, str, str]]


def read_input(kind: InputType, path: Path, base: Path | None = None) -> Input:
    """Which objects `path` speaks of.

    base: of params and bazel_aquery the directory that the linker ran in; of the others the one that modules are named
    relative to. Raises `UserError` for an input that is not of its kind, or that has no object.
    """
    if kind == "json":
        objects, rest = from_compile_commands(path, base)
        return Input(path.absolute().parent.name, objects, [(n, NO_OUTPUT, "no -o in its command") for n in rest])
    if kind in ("directory", "saved"):
        objects = (from_saved if kind == "saved" else from_directory)(path, base)
        return Input(path.absolute().name, objects, [])
    objects, rest = (from_params if kind == "params" else from_aquery)(path, base)
    root = (base or Path()).absolute()
    return Input(root.name, objects, [(n, OUTSIDE, f"a module's name is a path below {root}") for n in rest])
