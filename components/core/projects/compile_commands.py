"""Entries of a compile_commands.json (clang's "JSON Compilation Database")."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from components.core.projects.compiler_command import (
    CompileCommand,
    NoObjectError,
    compile_of_shell,
    compile_of_words,
    compiler_calls,
    compiler_of,
    output_of_shell,
    output_of_words,
)
from components.platform.errors import UserError

DATABASE = "compile_commands.json"


def directory_of(entry: dict[str, Any], database: Path) -> str:
    """Return the directory that a command ran in. A relative one starts from the directory of the database.

    Raises:
        NoObjectError: the entry has none.
    """
    directory = entry.get("directory")
    if not isinstance(directory, str):
        raise NoObjectError("it has no directory")
    return directory if os.path.isabs(directory) else os.path.join(os.path.abspath(database.parent), directory)


def output_of(entry: dict[str, Any], directory: str) -> str:
    """Return the object that a command writes, as the command spells it.

    Args:
        directory: absolute path of the directory that the command ran in.

    Raises:
        NoObjectError: it writes none, or the entry is not valid.
    """
    command, source, named = _fields(entry)
    if isinstance(command, list):
        return output_of_words(command, directory, source, named)
    if isinstance(command, str):
        return output_of_shell(command, directory, source, named)
    if not named:
        raise NoObjectError("it has neither command nor output")
    return named


def compile_of(entry: dict[str, Any], directory: str) -> CompileCommand:
    """Return the compile of an entry, for the arguments see `output_of`. NoObjectError if it is none."""
    command, source, named = _fields(entry)
    if isinstance(command, list):
        return compile_of_words(command, directory, source, named)
    if isinstance(command, str):
        return compile_of_shell(command, directory, source, named)
    raise NoObjectError("it has no command")


def _fields(entry: dict[str, Any]) -> tuple[list[str] | str | None, str, str]:
    """Return the words or the shell command, the source and the output of an entry, "" for what it does not name."""
    arguments, command = entry.get("arguments"), entry.get("command")
    source, named = (value if isinstance(value, str) else "" for value in (entry.get("file"), entry.get("output")))
    if isinstance(arguments, list) and all(isinstance(word, str) for word in arguments):
        return arguments, source, named
    return command if isinstance(command, str) else None, source, named


def find_output(entry: dict[str, Any], database: Path) -> str | None:
    """Return the object that a command writes, as the command spells it, None if it writes none."""
    try:
        return output_of(entry, directory_of(entry, database))
    except NoObjectError:
        return None


def objects_in(content: str, database: Path) -> Iterator[tuple[str, str]]:
    """Yield the directory and object path of each command in a compilation database that makes an object.

    Stops at invalid content, because the step that reads the file reports the error.
    """
    for entry in _entries(content):
        output = find_output(entry, database)
        if output is not None and "\0" not in (directory := directory_of(entry, database)) + output:
            yield directory, os.path.join(directory, output)


def compiles_in(content: str, database: Path) -> Iterator[CompileCommand]:
    """Yield the compile of each command that is one; nothing of invalid content."""
    for entry in _entries(content):
        try:
            yield compile_of(entry, directory_of(entry, database))
        except (NoObjectError, UserError):
            continue


def compilers_in(content: str, database: Path) -> Iterator[str]:
    """Yield the path of the compiler of each command in a compilation database; nothing of invalid content."""
    for entry in _entries(content):
        command, _source, _named = _fields(entry)
        try:
            directory = directory_of(entry, database)
            if isinstance(command, list):
                programs = [compiler_of(command)[0]]
            else:
                programs = [program for _directory, program, _arguments in compiler_calls(command or "", directory)]
        except NoObjectError:
            continue
        yield from (os.path.join(directory, program) for program in programs if "/" in program)


def _entries(content: str) -> list[dict[str, Any]]:
    try:
        entries = json.loads(content)
    except (ValueError, RecursionError):
        return []
    return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
