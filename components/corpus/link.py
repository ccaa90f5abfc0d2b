"""Which object files a linker was given: its params file, or bazel's account of the link."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from components.console import UserError
from components.corpus.objects import ObjectFile, distinct, object_at
from components.storage.input_files import MissingFile, read_bytes, read_json

_LINK = "CppLink"
_AQUERY = "bazel aquery --output=jsonproto TARGET"


def from_params(path: Path, base: Path | None = None) -> tuple[list[ObjectFile], list[str]]:
    """The objects of a params file of lld, one argument a line, and those that lie outside of `base`.

    base: the directory that the linker ran in, from which relative paths start; None: the current one. Modules are
    named as the linker's arguments are. Raises `UserError` for a file that names no object.
    """
    remedy = "name the file that the linker's command line has behind an @: one argument a line"
    try:
        content = read_bytes(path, remedy).decode("utf-8", "surrogateescape")
    except MissingFile:
        raise UserError(f"no params file at {path}: no such file", remedy) from None
    lines = [line.strip() for line in io.StringIO(content, newline=None)]
    objects = objects_of(lines)
    if not objects:
        raise UserError(f"{path} names no object: none of its {len(lines)} lines does", remedy)
    return _named(objects, base, path)


def from_aquery(path: Path, base: Path | None = None) -> tuple[list[ObjectFile], list[str]]:
    """The objects that the last link of a `bazel aquery` takes, as `from_params` returns them.

    The file is an analysis.ActionGraphContainer in JSON (bazel's src/main/protobuf/analysis_v2.proto), `base` the
    execution root. Raises `UserError` for a file that is none and for one in which nothing is linked.
    """
    links = [action for action in _actions(path) if action.get("mnemonic") == _LINK]
    if not links:
        raise UserError(f"{path} has no {_LINK} action: nothing is linked there", f"{_AQUERY} > FILE, of a cc_binary")
    # The last one, as mlgo-utils has it: a binary's comes behind those of the shared libraries that it needs.
    arguments = links[-1].get("arguments")
    if not isinstance(arguments, list) or not all(isinstance(argument, str) for argument in arguments):
        raise UserError(f"{path}: its {_LINK} action has no list of arguments", f"{_AQUERY} > FILE")
    objects = objects_of(arguments)
    if not objects:
        params = [argument[1:] for argument in arguments if argument.startswith("@")]
        remedy = f"pass --input-type params --input {params[0]}" if params else f"{_AQUERY} > FILE, of a cc_binary"
        raise UserError(f"{path}: its {_LINK} action names no object", remedy)
    return _named(objects, base, path)


def objects_of(arguments: Sequence[str]) -> list[str]:
    """What of a linker's arguments are objects: what ends in .o, options and the output aside.

    Where no -o says that this is a whole command line, it is a list of objects, whatever their suffix.
    """
    if "-o" not in arguments:
        return [argument for argument in arguments if argument and not argument.startswith("-")]
    output = arguments.index("-o")
    inputs = [*arguments[:output], *arguments[output + 2 :]]
    return [argument for argument in inputs if argument.endswith(".o") and not argument.startswith("-")]


def _actions(path: Path) -> list[dict[str, Any]]:
    remedy = f"{_AQUERY} > FILE writes it"
    try:
        document = read_json(path, remedy)
    except MissingFile:
        raise UserError(f"no aquery at {path}: no such file", remedy) from None
    actions = document.get("actions") if isinstance(document, dict) else None
    if not isinstance(actions, list) or not all(isinstance(action, dict) for action in actions):
        raise UserError(f'{path} is not the output of bazel aquery: it has no list of "actions"', remedy)
    return actions


def _named(spelled: Sequence[str], base: Path | None, where: Path) -> tuple[list[ObjectFile], list[str]]:
    directory = "" if base is None else str(base)
    found = [object_at(directory, name) for name in spelled]
    outside = [name for name, item in zip(spelled, found, strict=True) if item is None]
    return distinct([item for item in found if item is not None], where), outside
