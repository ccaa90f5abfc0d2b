"""Object files of a link, from the linker's params file or from bazel aquery."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from components.core.console import UserError
from components.core.storage.input_files import MissingFile, read_bytes, read_json
from components.corpus.sources.objects import ObjectFile, distinct, object_at

_LINK = "CppLink"
_AQUERY = "bazel aquery --output=jsonproto TARGET"


def from_params(path: Path, base: Path | None = None) -> tuple[list[ObjectFile], list[str]]:
    """Return the objects in a params file of lld (one argument per line), and those that lie outside of `base`.

    Modules have the names of the linker's arguments.

    Args:
        path: of the params file.
        base: directory that the linker ran in, which relative paths start from; None: the current one.

    Raises:
        UserError: the file names no object.
    """
    remedy = "pass the file that follows @ on the linker's command line, with one argument per line"
    try:
        content = read_bytes(path, remedy).decode("utf-8", "surrogateescape")
    except MissingFile:
        raise UserError(f"no params file at {path}: no such file", remedy) from None
    lines = [line.strip() for line in io.StringIO(content, newline=None)]
    objects = objects_of(lines)
    if not objects:
        raise UserError(f"{path} names no object in its {len(lines)} lines", remedy)
    return _to_objects(objects, base, path)


def from_aquery(path: Path, base: Path | None = None) -> tuple[list[ObjectFile], list[str]]:
    """Return the objects of the last link in the output of `bazel aquery`, in the form of `from_params`.

    Args:
        path: an analysis.ActionGraphContainer in JSON (bazel's src/main/protobuf/analysis_v2.proto).
        base: the execution root.

    Raises:
        UserError: the file is not the output of bazel aquery, or has no link.
    """
    links = [action for action in _actions(path) if action.get("mnemonic") == _LINK]
    if not links:
        raise UserError(f"{path} has no {_LINK} action: it links nothing", f"run {_AQUERY} > FILE for a cc_binary")
    # The last one, as in mlgo-utils: a binary is linked after the shared libraries that it needs.
    arguments = links[-1].get("arguments")
    if not isinstance(arguments, list) or not all(isinstance(argument, str) for argument in arguments):
        raise UserError(f"{path}: its {_LINK} action has no list of arguments", f"run {_AQUERY} > FILE")
    objects = objects_of(arguments)
    if not objects:
        params = [argument[1:] for argument in arguments if argument.startswith("@")]
        remedy = f"pass --input-type params --input {params[0]}" if params else f"run {_AQUERY} > FILE for a cc_binary"
        raise UserError(f"{path}: its {_LINK} action names no object", remedy)
    return _to_objects(objects, base, path)


def objects_of(arguments: Sequence[str]) -> list[str]:
    """Return the objects among a linker's arguments: those that end in .o, without options and the output.

    Arguments without -o are not a whole command line but a list of objects, which may have any suffix.
    """
    if "-o" not in arguments:
        return [argument for argument in arguments if argument and not argument.startswith("-")]
    output = arguments.index("-o")
    inputs = [*arguments[:output], *arguments[output + 2 :]]
    return [argument for argument in inputs if argument.endswith(".o") and not argument.startswith("-")]


def _actions(path: Path) -> list[dict[str, Any]]:
    remedy = f"write it with {_AQUERY} > FILE"
    try:
        document = read_json(path, remedy)
    except MissingFile:
        raise UserError(f"no output of bazel aquery at {path}: no such file", remedy) from None
    actions = document.get("actions") if isinstance(document, dict) else None
    if not isinstance(actions, list) or not all(isinstance(action, dict) for action in actions):
        raise UserError(f'{path} is not the output of bazel aquery: it has no list of "actions"', remedy)
    return actions


def _to_objects(arguments: Sequence[str], base: Path | None, where: Path) -> tuple[list[ObjectFile], list[str]]:
    directory = "" if base is None else str(base)
    found = [object_at(directory, name) for name in arguments]
    outside = [name for name, item in zip(arguments, found, strict=True) if item is None]
    return distinct([item for item in found if item is not None], where), outside
