"""Entries of a compile_commands.json (clang's "JSON Compilation Database")."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from typing import Any


def output_of(entry: dict[str, Any]) -> str | None:
    """Return the object that a command writes, as the command spells it: the argument of -o, else the "output" key."""
    arguments = entry.get("arguments")
    if not isinstance(arguments, list):
        command = str(entry.get("command", ""))
        # Most commands need no shell quoting rules, and shlex.split takes a hundred times as long.
        arguments = _shell_split(command) if any(c in command for c in "\"'\\") else command.split()
    if "-o" in arguments[:-1]:
        return str(arguments[arguments.index("-o") + 1])
    output = entry.get("output")
    return output if isinstance(output, str) else None


def objects_in(content: str) -> Iterator[tuple[str, str]]:
    """Yield the directory and object path of each command in a compilation database that names its output.

    Stops at invalid content, because the step that reads the file reports the error.
    """
    try:
        entries = json.loads(content)
        for entry in entries if isinstance(entries, list) else []:
            directory, output = entry["directory"], output_of(entry)
            if output and "\0" not in directory + output:
                yield directory, os.path.join(directory, output)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return


def _shell_split(command: str) -> list[str]:
    # Only the part from -o on matters.
    at = command.rfind(" -o ")
    try:
        return shlex.split(command[at:] if at >= 0 else command)
    except ValueError:
        return command.split()
