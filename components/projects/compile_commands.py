"""Entries of a compile_commands.json (clang's "JSON Compilation Database")."""

from __future__ import annotations

import shlex
from typing import Any


def output_of(entry: dict[str, Any]) -> str | None:
    """The object that a command writes, as the command spells it: the argument of -o, else the "output" key."""
    arguments = entry.get("arguments")
    if not isinstance(arguments, list):
        command = str(entry.get("command", ""))
        # Most commands need no shell's rules, and splitting by them takes a hundred times as long.
        arguments = _shell_split(command) if any(c in command for c in "\"'\\") else command.split()
    if "-o" in arguments[:-1]:
        return str(arguments[arguments.index("-o") + 1])
    output = entry.get("output")
    return output if isinstance(output, str) else None


def _shell_split(command: str) -> list[str]:
    # Only the part from -o on matters.
    at = command.rfind(" -o ")
    try:
        return shlex.split(command[at:] if at >= 0 else command)
    except ValueError:
        return command.split()
