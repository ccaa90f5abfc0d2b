"""Changes what the modules of a corpus are compiled with, as ml-compiler-opt's additional_flags, delete_flags and
replace_flags do when it compiles."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from components.compiler.profiles import profile_of
from components.compiler.replay_options import MissingValue, group_options
from components.console import UserError
from components.corpus.files import read, write
from components.formats.corpus import DESCRIPTION, UNSPECIFIED_OVERRIDE


@dataclass(frozen=True)
class CommandEdits:
    """What changes in the arguments of every module.

    Options go by the name before "=", "-mllvm -inline-threshold" included; an option whose value is an argument of its
    own goes with it.

    Attributes:
        add: put behind the others, where a later one wins.
        remove: names.
        replace: names and new values; a flag without a value becomes the new one itself (-O2, -Oz).
    """

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    replace: tuple[tuple[str, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.add or self.remove or self.replace)

    def apply(self, arguments: Sequence[str]) -> tuple[list[str], set[str]]:
        """Return the arguments with these changes, and which names to remove or replace are in them.

        Raises:
            MissingValue: the arguments end inside an option.
        """
        changed: list[str] = []
        found: set[str] = set()
        remove, replace = set(map(_named, self.remove)), {_named(name): value for name, value in self.replace}
        for group in group_options(arguments):
            name = _name(group)
            if name in remove:
                found.add(name)
            elif name in replace:
                found.add(name)
                changed += _with_value(group, name, replace[name])
            else:
                changed += group
        return [*changed, *(word for text in self.add for word in shlex.split(text))], found

    def profiles(self) -> list[str]:
        """The files that added and replaced options name as profiles."""
        words = [word for text in self.add for word in shlex.split(text)]
        words += [f"{_named(name)}={value}" for name, value in self.replace]
        return [found[1] for word in words if (found := profile_of(word))]

    def names(self) -> set[str]:
        """The names to remove or replace, as `apply` returns them."""
        return {_named(name) for name in (*self.remove, *(name for name, _ in self.replace))}


def edit_commands(corpus: Path, names: Iterable[str], edits: CommandEdits) -> None:
    """Change the .cmd files of modules in `corpus`, or the arguments that its description has for all.

    Raises:
        UserError: no module has an option that is to be removed or replaced; a module's arguments end inside an option,
            or are not known.
    """
    if not edits:
        return
    found: set[str] = set()
    description: dict[str, Any] = json.loads((corpus / DESCRIPTION).read_text(encoding="utf-8"))
    override = description.get("global_command_override")
    if override == [UNSPECIFIED_OVERRIDE]:
        raise UserError(
            f"the corpus does not say how its modules are compiled: global_command_override is {UNSPECIFIED_OVERRIDE}",
            f"write clang's arguments into that list in its {DESCRIPTION}",
        )
    if override is not None:
        description["global_command_override"], found = _applied(edits, override, DESCRIPTION)
        (corpus / DESCRIPTION).write_text(json.dumps(description, indent=2), encoding="utf-8")
    else:
        for name in names:
            path = str(corpus / f"{name}.cmd")
            recorded = read(path).decode("utf-8", "surrogateescape").removesuffix("\0").split("\0")
            arguments, here = _applied(edits, recorded, name)
            found |= here
            write(path, "".join(f"{argument}\0" for argument in arguments).encode("utf-8", "surrogateescape"))
    if missing := sorted(edits.names() - found):
        raise UserError(
            f"no module is compiled with {', '.join(missing)}",
            "give the options' names as the modules' .cmd files have them (tr '\\0' '\\n' < FILE.cmd)",
        )


def edit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--cmd-add, --cmd-remove and --cmd-replace."""
    for option in (
        click.option(
            "--cmd-replace", type=(str, str), multiple=True, metavar="NAME VALUE",
            help="Give this cc1 option another value in all modules; a flag without a value becomes VALUE. Repeatable.",
        ),
        click.option(
            "--cmd-remove", multiple=True, metavar="NAME",
            help="Take this cc1 option, and its value, out of all modules' arguments. Repeatable.",
        ),
        click.option(
            "--cmd-add", multiple=True, metavar="ARGUMENTS",
            help="Put these cc1 arguments behind those of all modules: '-mllvm -inline-threshold=3'. Repeatable.",
        ),
    ):  # fmt: skip
        command = option(command)
    return command


def edits_of(cmd_add: tuple[str, ...], cmd_remove: tuple[str, ...], cmd_replace: tuple[tuple[str, str], ...]) -> (
    CommandEdits
):  # fmt: skip
    """What the options say. UserError for one that cannot be meant."""
    for text in cmd_add:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UserError(f"--cmd-add {text!r}: {error}", "quote it as a shell would read it") from None
        if not words:
            raise UserError("--cmd-add '' adds nothing", "give cc1's arguments, or leave it out")
    # A profile's path is meant from here, not from where a module was compiled.
    add = tuple(shlex.join(map(_absolute, shlex.split(text))) for text in cmd_add)
    replace = tuple(
        (name, os.path.abspath(value) if profile_of(f"{_named(name)}={value}") else value)
        for name, value in cmd_replace
    )
    return CommandEdits(add, cmd_remove, replace)


def _absolute(argument: str) -> str:
    found = profile_of(argument)
    return f"{found[0]}={os.path.abspath(found[1])}" if found else argument


def _applied(edits: CommandEdits, arguments: Sequence[str], module: str) -> tuple[list[str], set[str]]:
    try:
        return edits.apply(arguments)
    except MissingValue as error:
        problem = f"the recorded arguments of {module} end behind {error}, which needs a value"
        raise UserError(problem, "extract the corpus again") from None


def _named(name: str) -> str:
    return " ".join(name.removesuffix("=").split())


def _name(group: Sequence[str]) -> str:
    option = group[-1] if group[0] == "-mllvm" else group[0]
    name = option.partition("=")[0]
    return f"-mllvm {name}" if group[0] == "-mllvm" else name


def _with_value(group: Sequence[str], name: str, value: str) -> list[str]:
    if group[0] == "-mllvm":
        return ["-mllvm", f"{name.removeprefix('-mllvm ')}={value}"]
    if len(group) > 1:
        return [group[0], value]
    return [f"{name}={value}"] if "=" in group[0] else [value]
