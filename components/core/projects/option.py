"""The types of options that name code: a recipe, a finished build, a corpus.

Users confuse them, because all three are "the code". An error says which option takes what was given.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import click

from components.core.formats.corpus import DESCRIPTION
from components.core.projects.compile_commands import DATABASE
from components.core.projects.recipe import locate_recipe, recipe_words
from components.platform.errors import UserError
from components.platform.processes import sandbox
from components.platform.storage.object_storage.fetch import fetch_file
from components.platform.storage.options import ARTIFACT, FILE, WHOLE_TREE, LocationType
from components.platform.storage.uri import USAGE, ObjectUri, in_object_storage

CodeKind = Literal["recipe", "compile_commands", "corpus"]
"""Kinds of code, as the pipeline's parameters are named."""

_DESCRIBED: dict[CodeKind, str] = {
    "recipe": "a recipe",
    "compile_commands": "a compilation database",
    "corpus": "a corpus",
}
_MAKES_CORPUS: dict[CodeKind, str] = {
    "recipe": "mlgo corpus build --recipe {} --output DIR",
    "compile_commands": "mlgo corpus extract --compile-commands {} --output DIR",
    "corpus": "mlgo corpus import --input {} --output DIR",
}
TRUST_VARIABLE = "MLGO_TRUST_CORPUS"
_TRUSTED = "components.core.projects.option.trusted"
_OTHER_NAMES = {"existing": "corpus"}
"""Parameters of commands that are named otherwise."""


def code_kind(text: str) -> tuple[CodeKind, str] | None:
    """Return which kind of code a user's text names on this machine, and how it is written; None if that is unclear."""
    if os.path.isdir(text):
        if os.path.isfile(os.path.join(text, DESCRIPTION)):
            return "corpus", text
        database = os.path.join(text, DATABASE)
        return ("compile_commands", database) if os.path.isfile(database) else None
    if os.path.isfile(text):
        folder, name = os.path.split(text)
        if name == DESCRIPTION:
            return "corpus", folder or "."
        if name == DATABASE:
            return "compile_commands", text
        return ("recipe", text) if name.endswith((".yaml", ".yml")) else None
    return ("recipe", text) if text in recipe_words() else None


def require_code_kind(kind: CodeKind, text: str, format_option: Callable[[CodeKind, str], str]) -> None:
    """Raise UserError if `text`, given where code of this kind is wanted, names code of another kind.

    Args:
        format_option: how the error writes an option with its value; "" if the command has no option for the kind.
    """
    actual = ("recipe", text) if kind == "recipe" and text in recipe_words() else code_kind(text)
    if actual is None or actual[0] == kind:
        return
    meant = format_option(*actual)
    raise UserError(
        f"{format_option(kind, text) or text} is not {_DESCRIBED[kind]}",
        f"did you mean {meant}?" if meant else f"make a corpus of it: {_MAKES_CORPUS[actual[0]].format(actual[1])}",
    )


def find_database(path: Path) -> Path:
    """Return the compile_commands.json in a build directory, as clang's tools find it with -p; a file as it is.

    Raises:
        UserError: the directory has none.
    """
    if not path.is_dir():
        return path
    if (path / DATABASE).is_file():
        return path / DATABASE
    raise UserError(
        f"there is no {DATABASE} in the directory {path}",
        "configure the project with -DCMAKE_EXPORT_COMPILE_COMMANDS=ON, or record its build with bear -- make",
    )


class _Recipe(click.ParamType[Path, object]):
    """Converts to the path of an existing recipe, whose content is not read yet."""

    name = "file|uri|name"

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> Path:
        require_code_kind("recipe", str(value), _option_formatter("recipe", parameter, context))
        location = locate_recipe(str(value))
        return fetch_file(location) if isinstance(location, ObjectUri) else location


class _CodePath(click.ParamType[Path, object]):
    """Converts as `path_type` does, after an error about code of another kind."""

    def __init__(self, kind: CodeKind, path_type: LocationType, name: str = "") -> None:
        self.name = name or path_type.name
        self._kind, self.path_type = kind, path_type

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> Path:
        require_code_kind(self._kind, str(value), _option_formatter(self._kind, parameter, context))
        path = self.path_type.convert(value, parameter, context)
        return find_database(path) if self._kind == "compile_commands" else path


class _CompiledCorpus(_CodePath):
    """Converts to the path of a corpus, unless its compiles cannot be confined and nobody says that they need not be.

    The user's own corpus and another's look the same, so each that a user names needs a word. Steps of a run pass on
    the corpus of its first step, with that word.
    """

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> Path:
        if not (context and context.meta.get(_TRUSTED)) and sandbox.kind() == "none":
            raise UserError(
                f"{value}: compiles cannot be confined here, so a corpus from elsewhere could do whatever you may",
                f"if you made it, or trust who did, pass --trust-corpus (for mlgo run: {TRUST_VARIABLE}=1); otherwise "
                "use a machine with Landlock, or install bubblewrap",
            )
        return super().convert(value, parameter, context)


def unwrap_type(kind: click.ParamType[Any, Any]) -> click.ParamType[Any, Any]:
    """Return the type that an option of code converts its value with; of other options their type."""
    return kind.path_type if isinstance(kind, _CodePath) else kind


class _LocalCorpus(click.ParamType[Path, object]):
    """Converts to the path of a directory on this machine."""

    name = "dir"

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> Path:
        text = str(value)
        require_code_kind("corpus", text, _option_formatter("corpus", parameter, context))
        if in_object_storage(text):
            raise UserError(
                f"--corpus {text}: this command takes a corpus on this machine",
                f"for {USAGE}: mlgo pipeline run --param corpus={text}",
            )
        directory = click.Path(path_type=Path, exists=True, file_okay=False).convert(text, parameter, context)
        assert isinstance(directory, Path)
        return directory


def _option_formatter(
    kind: CodeKind, parameter: click.Parameter | None, context: click.Context | None
) -> Callable[[CodeKind, str], str]:
    """Return the `format_option` of `require_code_kind` for a command whose `parameter` takes code of a kind."""
    parameters = context.command.params if context else ()
    options = {_OTHER_NAMES.get(str(one.name), one.name): one.opts[0] for one in parameters}
    if parameter:
        options[kind] = parameter.opts[0]

    def format_option(kind: CodeKind, text: str) -> str:
        return f"{options[kind]} {text}" if kind in options else ""

    return format_option


RECIPE = _Recipe()
"""A file, a URI, or the name of a recipe that comes with this project."""
COMPILE_COMMANDS = _CodePath("compile_commands", FILE, "file|dir|uri")
"""A compile_commands.json, or the build directory that holds it."""
CORPUS = _CompiledCorpus("corpus", ARTIFACT)
"""A corpus of the corpus step or of extract_ir, to compile; the command has the option TRUST_CORPUS, too."""
EXISTING_CORPUS = _CompiledCorpus("corpus", WHOLE_TREE)
"""A corpus from whatever tool, which later steps compile."""
ANY_CORPUS = _CodePath("corpus", WHOLE_TREE)
"""The same, to read only."""
LOCAL_CORPUS = _LocalCorpus()
TRUST_CORPUS = click.option(
    "--trust-corpus",
    is_flag=True,
    is_eager=True,  # before the corpus, of which it decides whether it is taken
    expose_value=False,
    envvar=TRUST_VARIABLE,
    callback=lambda context, _parameter, value: context.meta.update({_TRUSTED: value}),
    help="Compile the corpus although nothing confines compiles here: only if you made it, or trust who did.",
)
