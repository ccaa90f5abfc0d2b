"""Reads files that others wrote and turns every way in which that can fail into a UserError.

Failures are of three kinds: the path (missing, a directory, a loop of links, a named pipe, not a path), the syntax
(JSON, YAML, UTF-8), and the shape of the document, which only its reader knows: see `typed`.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from components.platform.errors import UserError

MAX_DEPTH = 64
"""Nesting limit of JSON and YAML. This project's files nest ten deep; Python's recursion limit is far above."""
MAX_ALIAS_VALUES = 100_000
"""Limit of values that the aliases and merge keys of a YAML file add: a few lines of nested aliases expand to
billions. So many take 0.3 s."""
_MAX_INTEGER_DIGITS = 1000
"""Far beyond any count. Converting a million digits in base 60 (`1:1:1...`) takes minutes."""

MACHINE_ERRORS = (errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors that say nothing about a file: another path, or making it again, does not help."""

T = TypeVar("T")
_WRONG_SHAPE = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)


class MissingFile(UserError):
    """The file does not exist. A subclass, so that callers can say what should be there."""


def open_regular(path: str | Path, flags: int = 0) -> int:
    """Open a regular file for reading; return its descriptor.

    Args:
        flags: more flags of open(2).

    Raises:
        OSError: it cannot be opened, or is not a regular file. Named pipes are refused without waiting for a writer.
        ValueError: the path contains NUL or cannot be encoded.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise OSError(0, "is a directory, not a file" if stat.S_ISDIR(mode) else "is not a regular file", str(path))
    return descriptor


def read_bytes(path: Path, remedy: str = "check the path") -> bytes:
    """Return the content of a regular file.

    Raises:
        MissingFile: it does not exist.
        UserError: it cannot be read, or is not a regular file.
    """
    with path_errors(path, remedy), os.fdopen(open_regular(path), "rb", buffering=0) as stream:
        return stream.readall()  # type: ignore[attr-defined, no-any-return]


@contextmanager
def path_errors(path: Path, remedy: str = "check the path") -> Iterator[None]:
    """Turn file system errors about `path` into UserErrors: MissingFile if it does not exist.

    MACHINE_ERRORS stay OSErrors, with the path.
    """
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFile(f"{path} does not exist", remedy) from None
    except OSError as error:
        if error.errno in MACHINE_ERRORS:
            raise OSError(error.errno, error.strerror, str(path)) from None
        why = error.strerror or str(error)
        raise UserError(f"{path} {why}" if error.errno == 0 else f"{path} cannot be read: {why}", remedy) from None
    except ValueError:  # NUL, or a lone surrogate, which only JSON and YAML can contain
        raise UserError(f"{str(path)!r} is not a path", remedy) from None


def read_text(path: Path, remedy: str = "check the path") -> str:
    """Return the content of a UTF-8 file. UserError as `read_bytes`, or it is not UTF-8."""
    try:
        return read_bytes(path, remedy).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text in UTF-8: {error}", remedy) from None


def read_json(path: Path, remedy: str = "check the path") -> Any:
    """Return the document in a JSON file. UserError as `read_bytes` and `parse_json`."""
    return parse_json(read_bytes(path, remedy), str(path), remedy)


def read_document(path: Path, kind: type[T], what: str, remedy: str, supported_version: int) -> T:
    """Return the document in a JSON file, which has a key "version", as an instance of `kind`.

    Raises:
        UserError: as `read_bytes`, `parse_json` and `typed`, or the file has another version.
    """
    document = read_json(path, remedy)
    with expect_shape(path, what, remedy):
        version = document["version"]
    if version != supported_version:
        raise UserError(f"{path} has version {version!r:.20}, this program reads {supported_version}", remedy)
    return typed(document, kind, path, what, remedy)


def parse_json(text: str | bytes, name: str, remedy: str) -> Any:
    """Parse the JSON document `text`; `name` is its source, for errors. UserError if it is not valid."""
    try:
        document = json.loads(text)
    except RecursionError:
        raise _nesting_error(name, remedy) from None
    except ValueError as error:
        raise UserError(f"{name} is not valid JSON: {error}", remedy) from None
    _check_depth(document, name, remedy)
    return document


def parse_yaml(text: str, name: str, remedy: str, as_text: bool = False) -> list[Any]:
    """Parse a YAML stream into documents of plain values. UserError if it is not valid.

    Args:
        as_text: keep each scalar as it is written: `no` and 007 are text, not a truth value and 7.
    """
    documents = []
    added = 0
    try:
        loader: Any = (yaml.BaseLoader if as_text else yaml.SafeLoader)(text)
        while loader.check_node():
            node = loader.get_node()
            added += _alias_values(node, name, remedy) if node else 0
            if added > MAX_ALIAS_VALUES:  # checked first, because the construction expands merge keys
                raise UserError(f"{name} has aliases that expand to more than {MAX_ALIAS_VALUES} values", remedy)
            documents.append(loader.construct_document(node))
    except RecursionError:
        raise _nesting_error(name, remedy) from None
    except (yaml.YAMLError, *_WRONG_SHAPE) as error:  # the latter from tags: `!!int x`, `!!timestamp x`, `!!bool x`
        raise UserError(f"{name} is not valid YAML: {error}", remedy) from None
    _check_depth(documents, name, remedy)
    return documents


def typed(document: Any, kind: type[T], name: str | Path, what: str, remedy: str) -> T:
    """Return a document of plain values as an instance of `kind`; keys that `kind` does not have are ignored.

    Args:
        kind: a msgspec.Struct or a dataclass, or a container of such types.
        name: the source of the document, for errors.
        what: what it should be, for example "a trace description".

    Raises:
        UserError: a key is missing, or a value has another type.
    """
    with expect_shape(name, what, remedy):
        return msgspec.convert(document, kind)


@contextmanager
def expect_shape(name: str | Path, kind: str, remedy: str) -> Iterator[None]:
    """Turn the exceptions that a document of an unexpected shape raises into a UserError.

    Args:
        name: the source of the document.
        kind: what it should be, for example "a trace description".
    """
    try:
        yield
    except _WRONG_SHAPE as error:
        raise UserError(f"{name} is not {kind} ({_short_message(error)})", remedy) from None


def _short_message(error: Exception) -> str:
    text = f"no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]}…"


def _nesting_error(name: str, remedy: str) -> UserError:
    return UserError(f"{name} is nested more than {MAX_DEPTH} deep", remedy)


def _check_depth(document: Any, name: str, remedy: str) -> None:
    """Raise UserError if a document is nested too deep, or contains itself, as YAML can."""
    level = [document]
    for _ in range(MAX_DEPTH + 1):
        inner = {
            id(value): value
            for container in level
            for value in _values(container)
            if isinstance(value, dict | list | tuple | set)
        }
        if not inner:
            return
        level = list(inner.values())
    raise _nesting_error(name, remedy)


def _alias_values(document: yaml.Node, name: str, remedy: str) -> int:
    """Return how many values the aliases of a YAML document add when they are expanded.

    Raises:
        UserError: it has a huge integer.
        RecursionError: it contains itself.
    """
    sizes: dict[int, int] = {}
    """Expanded number of values by id of each node; 0 while the node is being counted."""

    def expanded_size(node: yaml.Node) -> int:
        size = sizes.get(id(node))
        if size == 0:
            raise RecursionError
        if size is None:
            sizes[id(node)] = 0
            pairs = node.value if isinstance(node, yaml.MappingNode) else ()
            inner = node.value if isinstance(node, yaml.SequenceNode) else [item for pair in pairs for item in pair]
            sizes[id(node)] = size = 1 + sum(map(expanded_size, inner))
            if node.tag.endswith(":int") and len(node.value) > _MAX_INTEGER_DIGITS:
                raise UserError(f"{name} has an integer of more than {_MAX_INTEGER_DIGITS} digits", remedy)
        return size

    return expanded_size(document) - len(sizes)


def _values(value: Any) -> Any:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple | set) else ()
