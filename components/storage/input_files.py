"""The border to files that others wrote: every way in which reading them can fail is a UserError.

Three kinds of failure meet here: the path (missing, a directory, a loop of links, a named pipe, no path at all), the
syntax (JSON, YAML, UTF-8), and the shape of the document, which only its reader knows: see `expect_shape`.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from components.console import UserError

MAX_DEPTH = 64
"""Of nesting in JSON and YAML. What this project reads is nested ten deep; far above, Python's recursion ends."""
MAX_YAML_NODES = 1_000_000
"""Of a YAML document with its aliases written out: a few lines of aliases of aliases stand for billions."""

_OTHER_SHAPE = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)


class MissingFile(UserError):
    """There is no such file. For a reader that can say more about what should be there."""


def open_regular(path: str | Path) -> int:
    """Open a regular file for reading; returns its descriptor.

    Raises:
        OSError: it cannot be opened; or it is something else, a named pipe for example, which is never waited for.
        ValueError: the path holds NUL or is not encodable.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise OSError(0, "is a directory, not a file" if stat.S_ISDIR(mode) else "is not a regular file", str(path))
    return descriptor


def read_bytes(path: Path, remedy: str = "check the path") -> bytes:
    """Return the content of a regular file.

    Raises:
        MissingFile: there is none.
        UserError: it cannot be read, or is no file.
    """
    with path_errors(path, remedy), os.fdopen(open_regular(path), "rb", buffering=0) as stream:
        return stream.readall()  # type: ignore[attr-defined, no-any-return]


@contextmanager
def path_errors(path: Path, remedy: str = "check the path") -> Iterator[None]:
    """Turn what the file system says about `path` into UserErrors, MissingFile where there is nothing."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFile(f"{path} does not exist", remedy) from None
    except OSError as error:
        why = error.strerror or str(error)
        raise UserError(f"{path} {why}" if error.errno == 0 else f"{path} cannot be read: {why}", remedy) from None
    except ValueError:  # NUL, or a lone surrogate, which only JSON and YAML can spell
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


def parse_json(text: str | bytes, name: str, remedy: str) -> Any:
    """Return the JSON document `text`; `name` says in errors where it comes from. UserError if it is none."""
    try:
        document = json.loads(text)
    except RecursionError:
        raise _nested(name, remedy) from None
    except ValueError as error:
        raise UserError(f"{name} is not valid JSON: {error}", remedy) from None
    _check_depth(document, name, remedy)
    return document


def parse_yaml(text: str, name: str, remedy: str) -> list[Any]:
    """Return the documents of a YAML stream, built of plain values. UserError if it is none."""
    try:
        documents = list(yaml.safe_load_all(text))
    except RecursionError:
        raise _nested(name, remedy) from None
    except (yaml.YAMLError, *_OTHER_SHAPE) as error:  # the latter from tags: `!!int x`, `!!timestamp x`, `!!bool x`
        raise UserError(f"{name} is not valid YAML: {error}", remedy) from None
    _check_depth(documents, name, remedy)
    if _written_out(documents, {}) > MAX_YAML_NODES:
        raise UserError(f"{name} has aliases that stand for more than {MAX_YAML_NODES} values", remedy)
    return documents


@contextmanager
def expect_shape(name: str | Path, kind: str, remedy: str) -> Iterator[None]:
    """Turn what a document of another shape than expected raises into a UserError.

    Args:
        name: where the document comes from.
        kind: what it should be, "a trace description".
    """
    try:
        yield
    except _OTHER_SHAPE as error:
        raise UserError(f"{name} is not {kind} ({_short(error)})", remedy) from None


def _short(error: Exception) -> str:
    text = f"no {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]}…"


def _nested(name: str, remedy: str) -> UserError:
    return UserError(f"{name} is nested more than {MAX_DEPTH} deep", remedy)


def _check_depth(document: Any, name: str, remedy: str) -> None:
    """UserError if a document is nested too deep, or contains itself, as YAML can."""
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
    raise _nested(name, remedy)


def _written_out(value: Any, known: dict[int, int]) -> int:
    """How many values a document has where each alias counts all that it stands for. known: by id, of containers."""
    if not isinstance(value, dict | list | tuple | set):
        return 1
    if id(value) not in known:
        known[id(value)] = 1 + sum(_written_out(item, known) for item in _values(value))
    return known[id(value)]


def _values(value: Any) -> Any:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple | set) else ()
