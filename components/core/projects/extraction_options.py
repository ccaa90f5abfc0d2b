"""Options of an extraction of modules from a build, which the corpus step and the pipelines share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, get_args

from components.core import problems
from components.platform.errors import UserError

Source = Literal["recipe", "corpus", "compile_commands", "input"]
"""Where the code comes from, as the pipeline's parameters are named. "input" is what mlgo-utils' extract_ir takes."""
SOURCES: tuple[Source, ...] = get_args(Source)
InputType = Literal["json", "params", "directory", "bazel_aquery"]
"""Kinds of an input; the names of extract_ir."""
INPUT_TYPES: tuple[InputType, ...] = get_args(InputType)
ThinLto = Literal["distributed", "local"]
THINLTO_BUILDS: tuple[ThinLto, ...] = get_args(ThinLto)
Unit = Literal["object", "program"]
UNITS: tuple[Unit, ...] = get_args(Unit)
_OPTIONS: dict[Source, set[str]] = {
    "recipe": {"unit"},
    "corpus": set(),
    "compile_commands": {"thinlto_build", "obj_base_dir", "cmd_filter"},
    "input": {"unit", "input_type", "thinlto_build", "obj_base_dir", "default_args", "cmd_filter"},
}
"""Source -> the options that it has."""


def check_extraction(
    write: Callable[[str, object], str],
    source: Source,
    problem: str,
    unit: Unit = "object",
    input_type: InputType | None = None,
    thinlto_build: ThinLto | None = None,
    obj_base_dir: str = "",
    default_args: str = "",
    cmd_filter: str = "",
) -> None:
    """Raise UserError for options that the source does not have, or that contradict, before anything is read.

    Args:
        write: writes an option with its value in a message, as the user gives it.
        input_type, thinlto_build: None if they are not given, as "" of the others.
    """
    given: dict[str, object] = {
        "unit": unit if unit != "object" else "",
        "input_type": input_type,
        "thinlto_build": thinlto_build,
        "obj_base_dir": obj_base_dir,
        "default_args": default_args,
        "cmd_filter": cmd_filter,
    }
    for name, value in given.items():
        if value and name not in _OPTIONS[source]:
            takers = [other for other in SOURCES if name in _OPTIONS[other]]
            raise UserError(
                f"{write(name, value)} is not for {write(source, '...')}",
                f"leave it out; it is for {' and '.join(write(other, '...') for other in takers)}",
            )
    if unit == "program":
        _check_programs(write, problem, {name: value for name, value in given.items() if value})
    if thinlto_build == "local":
        _check_local_thinlto(write, source, input_type, cmd_filter)
    elif default_args:
        raise UserError(
            f"{write('default_args', default_args)}: objects contain their arguments",
            f"leave it out; it is for {write('thinlto_build', 'local')}, which saves none",
        )
    if input_type in ("params", "bazel_aquery") and not obj_base_dir:
        raise UserError(
            f"{write('input_type', input_type)}: paths in such a file start from the directory that the linker ran in",
            f"pass {write('obj_base_dir', 'DIR')}; of Bazel, what bazel info execution_root prints",
        )
    try:
        re.compile(cmd_filter)
    except re.error as error:
        raise UserError(
            f"{write('cmd_filter', cmd_filter)} is not a regular expression: {error}",
            "see https://docs.python.org/3/library/re.html",
        ) from None


def _check_programs(write: Callable[[str, object], str], problem: str, given: dict[str, object]) -> None:
    level = problems.get(problem).optimization
    if level not in ("-Oz", "-Os"):
        # At other levels lld compiles a program by passes that clang does not have.
        raise UserError(
            f"{write('unit', 'program')} is for problems of -Oz and -Os, and {problem} is compiled at {level}",
            f"pass {write('unit', 'object')}",
        )
    for name in ("input_type", "thinlto_build", "default_args"):
        if given.get(name, "directory") != "directory":
            raise UserError(
                f"{write(name, given[name])} is not for {write('unit', 'program')}, whose input is a build's links",
                "leave it out",
            )


def _check_local_thinlto(
    write: Callable[[str, object], str], source: Source, input_type: InputType | None, cmd_filter: str
) -> None:
    local = write("thinlto_build", "local")
    if source != "input" or input_type not in (None, "directory"):
        wrong = write(source, "...") if source != "input" else write("input_type", input_type)
        raise UserError(
            f"{local} takes no list of objects, as {wrong} names: lld saves the modules next to them",
            f"pass {write('input', 'DIR')}, the directory that holds the *.3.import.bc files",
        )
    if cmd_filter:
        raise UserError(
            f"{write('cmd_filter', cmd_filter)} needs arguments, and {local} saves none",
            "leave it out",
        )
