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


class Input(Struct, frozen=True, forbid_unknown_fields=True):
    """Content of a benchmark's input: `text`; `files`, globs of the source tree whose contents, in the order of their
    paths, are repeated or cut to `bytes`; or `output_of` an earlier benchmark, by its name: its {output}."""

    text: Text | None = None
    files: Texts | None = None
    bytes: Annotated[int, Meta(ge=1, le=MAX_INPUT_BYTES)] | None = None
    output_of: Text | None = None


class Benchmark(Struct, frozen=True, forbid_unknown_fields=True):
    """One run of one program, a glob relative to the build directory.

    `arguments` may have the placeholders {input}, {output} (a file that the program writes) and {source} (the source
    tree). `stdin`: whether the program reads its input from standard input.
    """

    name: Text
    program: Text
    arguments: Texts = ()
    input: Input | None = None
    stdin: bool = False

    @property
    def writes_output(self) -> bool:
        return any("{output}" in argument for argument in self.arguments)


class ProjectDocument(Struct, forbid_unknown_fields=True):
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
    benchmarks: tuple[Benchmark, ...] = ()


class Target(Struct, frozen=True, forbid_unknown_fields=True):
    """Another processor or system than this machine's, which all projects of a set are compiled for.

    `triple`: LLVM's name of it, such as "aarch64-linux-gnu" or "thumbv7em-none-eabi". `sysroot`: directory of its
    headers and libraries, None where clang finds them. `cflags`, `ldflags`: further flags of each compile and of each
    link.
    """

    triple: Text
    sysroot: Text | None = None
    cflags: Texts = ()
    ldflags: Texts = ()

    @property
    def processor(self) -> str:
        return self.triple.partition("-")[0]

    @property
    def has_system(self) -> bool:
        """Whether programs run on an operating system, for which CMake can link its test programs."""
        return "linux" in self.triple

    def flags(self) -> list[str]:
        """Return the flags of clang that select the target, for compiles and links."""
        return [f"--target={self.triple}", *([f"--sysroot={self.sysroot}"] if self.sysroot else [])]


class RecipeSetDocument(Struct, forbid_unknown_fields=True):
    """A set of projects. A string in `projects` is the name of a file."""

    projects: tuple[str | ProjectDocument, ...] = ()
    packages: Texts = ()
    target: Target | None = None
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
