"""Object files of a link, from the linker's response file or from bazel aquery."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from components.core.projects.response_files import split_response_file
from components.corpus.outcome_kind import OutcomeKind
from components.corpus.sources.objects import Left, ObjectFile, deduplicate, locate_object
from components.platform.errors import UserError
from components.platform.storage.input_files import MissingFile, read_bytes, read_json

_LINK = "CppLink"
_AQUERY = "bazel aquery --output=jsonproto --include_param_files TARGET"
_MAX_RESPONSE_FILES = 1000
_OTHER_INPUTS = (".lo", ".obj", ".bc", ".ll", ".rlib", ".lib", ".la")
"""Suffixes of other files that a link may have modules in, without objects that can be extracted."""


def read_params(path: Path, base: Path | None = None) -> tuple[list[ObjectFile], Left]:
    """Return the objects in a response file of lld or GNU ld, and its other inputs.

    Modules have the names of the linker's arguments.

    Args:
        base: directory that the linker ran in, which relative paths start from; None: the current one.

    Raises:
        UserError: the file names no object, or a response file in it cannot be read.
    """
    remedy = "pass the file that follows @ on the linker's command line"
    try:
        content = read_bytes(path, remedy)
    except MissingFile:
        raise UserError(f"no params file at {path}: no such file", remedy) from None
    arguments = list(_expand(split_response_file(content, path), base, path))
    missing = UserError(f"{path} names no object in its {len(arguments)} arguments", remedy)
    return _to_objects(arguments, base, path, missing)


def _expand(
    arguments: Sequence[str], base: Path | None, where: Path, known: Mapping[str, Sequence[str]] | None = None
) -> Iterator[str]:
    """Yield the arguments with those of the response files that they name (@FILE, relative to `base`) in their place.

    Args:
        known: arguments of response files that need not be read.

    Raises:
        UserError: a response file cannot be read, or includes itself.
    """
    files = 0

    def expand(arguments: Sequence[str], including: tuple[Path, ...]) -> Iterator[str]:
        nonlocal files
        for argument in arguments:
            if not argument.startswith("@"):
                yield argument
                continue
            if known and argument[1:] in known:
                yield from known[argument[1:]]
                continue
            path = (base or Path()).absolute() / argument[1:]
            files += 1
            if path in including or files > _MAX_RESPONSE_FILES:
                raise UserError(f"{including[-1]} includes the response file {path} in a cycle", "write it again")
            try:
                content = read_bytes(path, "check the path")
            except UserError as error:
                raise UserError(
                    f"{including[-1]} names the response file {argument[1:]}, but {error.problem}",
                    "pass --obj-base-dir with the directory that the linker ran in (bazel info execution_root)",
                ) from None
            yield from expand(split_response_file(content, path), (*including, path))

    yield from expand(arguments, (where.absolute(),))


def read_aquery(path: Path, base: Path | None = None) -> tuple[list[ObjectFile], Left]:
    """Return the objects of the last link in the output of `bazel aquery`, in the form of `read_params`.

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
    if not _is_list_of_words(arguments):
        raise UserError(f"{path}: its {_LINK} action has no list of arguments", f"run {_AQUERY} > FILE")
    known = _parameter_files(links[-1], path)
    # Bazel 7.2 and later write the objects into a file that the command line does not name (bazelbuild/bazel#17536).
    unnamed = [word for name, words in known.items() if f"@{name}" not in arguments for word in words]
    missing = UserError(f"{path}: its {_LINK} action names no object", f"run {_AQUERY} > FILE for a cc_binary")
    return _to_objects(list(_expand([*arguments, *unnamed], base, path, known)), base, path, missing)


def _parameter_files(action: dict[str, Any], path: Path) -> dict[str, list[str]]:
    """Return the parameter files of an action, by their paths in the execution root, with their arguments.

    Raises:
        UserError: the action has no list of these.
    """
    files = action.get("paramFiles", [])
    if isinstance(files, list) and all(
        isinstance(file, dict)
        and isinstance(file.get("execPath"), str)
        and _is_list_of_words(file.setdefault("arguments", []))
        for file in files
    ):
        return {file["execPath"]: file["arguments"] for file in files}
    raise UserError(f"{path}: its {_LINK} action has no list of parameter files", f"run {_AQUERY} > FILE")


def _is_list_of_words(value: object) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def select_objects(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the objects and archives among a linker's arguments, those that end in .o or .a, and the other inputs that
    may have modules; both without the output: -o FILE, -oFILE, --output FILE, --output=FILE.

    Arguments without an output are not a whole command line but a list of objects, which may have any suffix.
    """
    inputs = []
    iterator = iter(arguments)
    for argument in iterator:
        if argument in ("-o", "--output"):
            next(iterator, None)
        elif not argument.startswith(("-o", "--output=")):
            inputs.append(argument)
    files = [argument for argument in inputs if argument and not argument.startswith("-")]
    if len(inputs) == len(arguments):
        return files, []
    objects, others = ([file for file in files if file.endswith(kind)] for kind in ((".o", ".a"), _OTHER_INPUTS))
    return objects, others


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


def _to_objects(
    arguments: Sequence[str], base: Path | None, where: Path, missing: UserError
) -> tuple[list[ObjectFile], Left]:
    names, others = select_objects(arguments)
    if not names:
        raise missing
    directory = "" if base is None else str(base)
    candidates = [locate_object(directory, name) for name in names]
    root = (base or Path()).absolute()
    left: Left = [
        (name, OutcomeKind.OUTSIDE, f"it lies outside of {root}")
        for name, item in zip(names, candidates, strict=True)
        if item is None
    ]
    left += [(name, OutcomeKind.NOT_AN_OBJECT, "it is neither an object nor an archive") for name in others]
    objects, repeated = deduplicate([item for item in candidates if item is not None])
    for first, item in repeated:
        raise UserError(
            f"{where}: {first.path} and {item.path} would both become the module {item.name}",
            "pass --obj-base-dir with the directory that holds both objects",
        )
    return objects, left
