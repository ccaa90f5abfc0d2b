"""Edits of the compiler arguments of a corpus's modules.

They correspond to additional_flags, delete_flags and replace_flags of ml-compiler-opt, which applies them when it
compiles.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from components.core.compiler.replay.replay_options import MissingValue, group_options, is_response_file
from components.core.formats.corpus import DESCRIPTION, UNSPECIFIED_OVERRIDE
from components.core.formats.profiles import parse_profile_option
from components.corpus.extraction.file_io import read, write
from components.platform.errors import UserError


@dataclass(frozen=True)
class CommandEdits:
    """Edits that apply to the arguments of every module.

    Options are identified by the name before "=", which may be one like "-mllvm -inline-threshold". If an option's
    value is a separate argument, it is removed or replaced with the option.

    Attributes:
        add: arguments to append; the last occurrence of an option wins.
        remove: names of options to remove.
        replace: names of options and their new values; for a flag without a value (-O2), the new value replaces the
            flag itself (-Oz).
    """

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    replace: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.add or self.remove or self.replace)

    def apply(self, arguments: Sequence[str]) -> tuple[list[str], set[str]]:
        """Return the edited arguments, and the names to remove or replace that were found in them.

        Raises:
            MissingValue: the arguments end inside an option.
        """
        changed: list[str] = []
        matched: set[str] = set()
        remove = set(map(_normalized_name, self.remove))
        replace = {_normalized_name(name): value for name, value in self.replace}
        for group in group_options(arguments):
            name = _option_name(group)
            if removed := remove & {name, *filter(is_response_file, group)}:
                matched |= removed
            elif name in replace:
                matched.add(name)
                changed += _with_value(group, name, replace[name])
            else:
                changed += group
        return [*changed, *(word for text in self.add for word in shlex.split(text))], matched

    def profiles(self) -> list[str]:
        """Return the paths of the profiles that added and replaced options name."""
        words = [word for text in self.add for word in shlex.split(text)]
        words += [f"{_normalized_name(name)}={value}" for name, value in self.replace]
        return [option[1] for word in words if (option := parse_profile_option(word))]

    def names(self) -> set[str]:
        """Return the names of the options to remove or replace, normalized as in `apply`'s result."""
        return {_normalized_name(name) for name in (*self.remove, *(name for name, _ in self.replace))}


def edit_commands(corpus: Path, names: Iterable[str], edits: CommandEdits) -> None:
    """Edit the .cmd files of modules in `corpus`, or the description's arguments for all modules if it has any.

    Raises:
        UserError: no module has an option that is to be removed or replaced; a module's arguments end inside an option,
            or are unknown.
    """
    if not edits:
        return
    matched: set[str] = set()
    description: dict[str, Any] = json.loads((corpus / DESCRIPTION).read_text(encoding="utf-8"))
    override = description.get("global_command_override")
    if override == [UNSPECIFIED_OVERRIDE]:
        raise UserError(
            f"the corpus has no compiler arguments: its global_command_override is {UNSPECIFIED_OVERRIDE}",
            f"write clang's arguments into that list in the corpus's {DESCRIPTION}",
        )
    if override is not None:
        description["global_command_override"], matched = _apply(edits, override, DESCRIPTION)
        (corpus / DESCRIPTION).write_text(json.dumps(description, indent=2), encoding="utf-8")
    else:
        for name in names:
            path = str(corpus / f"{name}.cmd")
            recorded = read(path).decode("utf-8", "surrogateescape").removesuffix("\0").split("\0")
            arguments, here = _apply(edits, recorded, name)
            matched |= here
            write(path, "".join(f"{argument}\0" for argument in arguments).encode("utf-8", "surrogateescape"))
    if missing := sorted(edits.names() - matched):
        raise UserError(
            f"no module is compiled with {', '.join(missing)}",
            "spell the options as in the modules' .cmd files (tr '\\0' '\\n' < FILE.cmd)",
        )


def edit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options --cmd-add, --cmd-remove and --cmd-replace to a command."""
    for option in (
        click.option(
            "--cmd-replace",
            type=(str, str),
            multiple=True,
            metavar="NAME VALUE",
            help="Set the value of this cc1 option in all modules; a flag without a value becomes VALUE. Repeatable.",
        ),
        click.option(
            "--cmd-remove",
            multiple=True,
            metavar="NAME",
            help="Remove this cc1 option and its value from the arguments of all modules. Repeatable.",
        ),
        click.option(
            "--cmd-add",
            multiple=True,
            metavar="ARGUMENTS",
            help="Append these cc1 arguments to those of all modules: '-mllvm -inline-threshold=3'. Repeatable.",
        ),
    ):
        command = option(command)
    return command


def parse_edits(
    cmd_add: tuple[str, ...], cmd_remove: tuple[str, ...], cmd_replace: tuple[tuple[str, str], ...]
) -> CommandEdits:
    """Return the edits that the options specify. UserError if a --cmd-add is empty or not quoted for a shell."""
    for text in cmd_add:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UserError(f"--cmd-add {text!r}: {error}", "quote it as for a shell") from None
        if not words:
            raise UserError("--cmd-add '' adds nothing", "pass arguments of cc1, or omit --cmd-add")
    # A profile's path is relative to the working directory, not to where a module was compiled.
    add = []
    for text in cmd_add:
        words = shlex.split(text)
        profiles = [(word, parse_profile_option(word)) for word in words]
        add.append(shlex.join(f"{p[0]}={os.path.abspath(p[1])}" if p else word for word, p in profiles))
    replace = tuple(
        (name, os.path.abspath(value) if parse_profile_option(f"{_normalized_name(name)}={value}") else value)
        for name, value in cmd_replace
    )
    return CommandEdits(tuple(add), cmd_remove, replace)


def _apply(edits: CommandEdits, arguments: Sequence[str], module: str) -> tuple[list[str], set[str]]:
    try:
        return edits.apply(arguments)
    except MissingValue as error:
        problem = f"the recorded arguments of {module} end after {error}, which needs a value"
        raise UserError(problem, "extract the corpus again") from None


def _normalized_name(name: str) -> str:
    return " ".join(name.removesuffix("=").split())


def _option_name(group: Sequence[str]) -> str:
    if group[0] == "-Xassembler":
        return f"-Wa,{group[1]}"  # as a refusal names it
    option = group[1] if group[0] == "-mllvm" else group[0]
    name = option.partition("=")[0]
    return f"-mllvm {name}" if group[0] == "-mllvm" else name


def _with_value(group: Sequence[str], name: str, value: str) -> list[str]:
    if group[0] == "-mllvm":
        return ["-mllvm", f"{name.removeprefix('-mllvm ')}={value}"]
    if len(group) > 1:
        return [group[0], value]
    return [f"{name}={value}"] if "=" in group[0] else [value]
