"""The keys and types of recipe files, checked by msgspec; docs/own-code.md, "Format", documents them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from components.platform.errors import UserError

MAX_INPUT_BYTES = 1 << 30
Text = Annotated[str, Meta(min_length=1)]
Texts = tuple[str, ...]
T = TypeVar("T")


class SourceDocument(Struct, forbid_unknown_fields=True):
    """Origin of a source tree: deb, git with tag, url with sha256, or path."""

    deb: Text | None = None
    git: Text | None = None
    tag: Text | None = None
    url: Text | None = None
    sha256: Text | None = None
    path: Text | None = None


class CmakeDocument(Struct, forbid_unknown_fields=True):
    """How CMake configures and builds a project."""

    directory: Text = "."
    options: dict[str, bool | int | float | str] = {}
    targets: Texts = ("all",)


class InputDocument(Struct, forbid_unknown_fields=True):
    """The input of a benchmark: text, files with bytes, or output_of."""

    text: Text | None = None
    files: Texts | None = None
    bytes: Annotated[int, Meta(ge=1, le=MAX_INPUT_BYTES)] | None = None
    output_of: Text | None = None


class BenchmarkDocument(Struct, forbid_unknown_fields=True):
    """One run of one program."""

    name: Text
    program: Text
    arguments: Texts = ()
    input: InputDocument | None = None
    stdin: bool = False


class ProjectDocument(Struct, forbid_unknown_fields=True):
    """One project."""

    name: Text
    source: SourceDocument
    requires: dict[str, SourceDocument] = {}
    prepare: Texts = ()
    cmake: CmakeDocument | None = None
    commands: Texts | None = None
    build: Literal["debian"] | None = None
    exclude: Texts = ()
    cflags: Texts = ()
    binaries: Texts = ()
    benchmarks: tuple[BenchmarkDocument, ...] = ()


class TargetDocument(Struct, forbid_unknown_fields=True):
    """The processor and system that all projects of a set are compiled for."""

    triple: Text
    sysroot: Text | None = None
    cflags: Texts = ()
    ldflags: Texts = ()


class RecipeSetDocument(Struct, forbid_unknown_fields=True):
    """A set of projects. A string in `projects` is the name of a file."""

    projects: tuple[str | ProjectDocument, ...] = ()
    packages: Texts = ()
    target: TargetDocument | None = None
    split: dict[str, Any] = {}


def convert(document: Any, kind: type[T], where: str) -> T:
    """Return a document of plain values as an instance of `kind`.

    Args:
        where: the source of the document, for errors.

    Raises:
        UserError: a value has another type, a key is missing or unknown, or a text contains characters that neither
            files nor command lines can hold (NUL, lone surrogates), which YAML can spell.
    """
    try:
        converted = msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise recipe_error(where, str(error), "correct the recipe; docs/own-code.md, Recipes, has the format") from None
    for text in _texts(document):
        if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
            raise recipe_error(where, f"{text!r:.60} contains NUL or a lone surrogate")
    return converted


def recipe_error(where: str, problem: str, remedy: str = "correct the recipe") -> UserError:
    """Return the error for a recipe whose values do not fit together. where: file, project and key."""
    return UserError(f"{where}: {problem}", remedy)


def _texts(document: Any) -> list[str]:
    if isinstance(document, dict):
        return [text for item in document.items() for part in item for text in _texts(part)]
    if isinstance(document, list | tuple):
        return [text for part in document for text in _texts(part)]
    return [document] if isinstance(document, str) else []
