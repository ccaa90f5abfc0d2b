"""A corpus on disk: the layout that mlgo-utils' extract_ir writes and google/ml-compiler-opt reads.

    corpus_description.json   {"has_thinlto": bool, "modules": [names]}, maybe "global_command_override"
    <name>.bc                 a module's bitcode
    <name>.cmd                its NUL-terminated cc1 arguments; absent where the override stands for all
    <name>.thinlto.bc         its ThinLTO index, where has_thinlto is true

and beside it, written by this project's corpus step:

    splits.json               which modules train, validate and are held out (components.formats.splits)
    report.json               what was extracted and what was not, by project

Corpora that other tools made have no manifest and no splits; they load all the same.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from components.console import UserError
from components.formats.bitcode import bitcode_problem
from components.formats.names import is_utf8
from components.formats.splits import SPLITS, Splits, read_splits
from components.storage.input_files import MissingFile, open_regular, read_bytes, read_json

DESCRIPTION = "corpus_description.json"
REPORT = "report.json"
UNSPECIFIED_OVERRIDE = "<UNSPECIFIED>"
"""What extract_ir writes as the only global argument of a local ThinLTO corpus: the user must fill it in."""

Part = Literal["train", "validation", "heldout", "all"]
_SHOWN = 5


@dataclass(frozen=True)
class Module:
    """One module of a corpus. `name` is an object's path relative to the corpus, "zstd/lib/zstd.c.o"."""

    name: str
    directory: Path
    thinlto: bool = False
    command_override: tuple[str, ...] | None = None

    @property
    def bitcode(self) -> Path:
        return self.directory / f"{self.name}.bc"

    @property
    def cmd(self) -> Path:
        return self.directory / f"{self.name}.cmd"

    @property
    def thinlto_index(self) -> Path | None:
        return self.directory / f"{self.name}.thinlto.bc" if self.thinlto else None

    @property
    def project(self) -> str:
        """The first component of the name, see `project_of`."""
        return project_of(self.name)

    def arguments(self) -> tuple[str, ...]:
        """What the module was compiled with: cc1's arguments, "-cc1" first; those of clang itself, without it, only
        where global_command_override has them. google/ml-compiler-opt tells the two apart in this way."""
        if self.command_override is not None:
            if UNSPECIFIED_OVERRIDE in self.command_override:
                raise UserError(
                    f"the corpus in {self.directory} does not say how its modules are compiled: "
                    f"global_command_override is {UNSPECIFIED_OVERRIDE}",
                    "extract it again with --default-args, or write clang's arguments into that list in "
                    f"{self.directory / DESCRIPTION} and make a corpus of it with mlgo corpus import",
                )
            return self.command_override
        text = read_bytes(self.cmd).decode("utf-8", "surrogateescape")
        arguments = tuple(text.removesuffix("\0").split("\0"))
        return arguments if arguments[0] == "-cc1" or not any(arguments) else ("-cc1", *arguments)


@dataclass(frozen=True)
class Corpus:
    """A corpus whose every module has its files. `modules`: unique names, in the description's order."""

    directory: Path
    modules: tuple[Module, ...]
    description: dict[str, Any] = field(repr=False)

    def __len__(self) -> int:
        return len(self.modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules)

    def splits(self) -> Splits:
        """The written split, checked to cover exactly this corpus' modules."""
        return read_splits(self.directory, [module.name for module in self.modules])

    def split(self, which: Part) -> tuple[Module, ...]:
        """The modules of one part, in the description's order; "all" needs no splits.json."""
        if which == "all":
            return self.modules
        if which not in SPLITS:
            raise ValueError(f"{which!r} is not a part of a corpus: {', '.join(SPLITS)} or all")
        names = set(self.splits().part(which))
        return tuple(module for module in self.modules if module.name in names)


def project_of(module_name: str) -> str:
    """Return the project of a module: the folder where `build` and `combine` put the project's modules."""
    return PurePosixPath(module_name).parts[0]


def load_corpus(directory: Path) -> Corpus:
    """Read and check a corpus: a sound description, every module's files there and its bitcode not cut off.

    Raises:
        UserError: the directory is no corpus, or an empty one; a corrupt description; modules whose files are missing
            or are not whole bitcode (names the first few).
    """
    corpus, damaged = inspect_corpus(directory)
    if damaged:
        problems = list(damaged.values())
        more = f" and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise UserError(
            f"the corpus in {corpus.directory} is damaged: {'; '.join(problems[:_SHOWN])}{more}",
            "make the corpus again, or leave these modules out: mlgo corpus import --skip-damaged",
        )
    return corpus


def inspect_corpus(directory: Path) -> tuple[Corpus, dict[str, str]]:
    """Read a corpus and find its damaged modules.

    Returns:
        The corpus with all modules that its description lists, and by the name of each damaged one what is wrong.

    Raises:
        UserError: the directory is no corpus, or an empty one; a corrupt description.
    """
    directory = Path(directory).absolute()  # compiles run in other directories
    description = _read_description(directory)
    names = description["modules"]
    if not names:
        raise UserError(
            f"the corpus in {directory} is empty: {DESCRIPTION} lists no module",
            "make it again; report.json there says why objects were left out",
        )
    override = description.get("global_command_override")
    thinlto = bool(description.get("has_thinlto", False))
    override = None if override is None else tuple(override)
    modules = tuple(Module(name, directory, thinlto, override) for name in names)
    damaged = {module.name: problem for module in modules if (problem := _problem(module))}
    return Corpus(directory, modules, description), damaged


def write_description(
    directory: Path, modules: list[str], thinlto: str | None = None, command_override: list[str] | None = None
) -> None:
    """Write corpus_description.json with the bytes that mlgo-utils would write.

    `thinlto` is None, "distributed" or "local"; a local ThinLTO corpus without `command_override` gets the one that
    asks the user to fill it in.
    """
    description: dict[str, Any] = {}
    if command_override is not None:
        description["global_command_override"] = command_override
    elif thinlto == "local":
        description["global_command_override"] = [UNSPECIFIED_OVERRIDE]
    description["has_thinlto"] = thinlto is not None
    description["modules"] = modules
    (directory / DESCRIPTION).write_text(json.dumps(description, indent=2), encoding="utf-8")


def _read_description(directory: Path) -> dict[str, Any]:
    path = directory / DESCRIPTION
    remedy = f"make it with python -m components.corpus extract ... --output {directory}"
    try:
        description = read_json(path, remedy)
    except MissingFile:
        raise UserError(f"{directory} is not a corpus: there is no {DESCRIPTION}", remedy) from None
    if not isinstance(description, dict) or not _is_strings(description.get("modules")):
        raise UserError(f'{path} has no list of module names under "modules"', remedy)
    names = description["modules"]
    override = description.get("global_command_override")
    if override is not None and not (_is_strings(override) and all(map(_is_path, override))):
        raise UserError(f"{path}: global_command_override is not a list of arguments", remedy)
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{path} lists the module {twice} twice", "take one of the two out")
    for name in names:
        parts = PurePosixPath(name).parts
        if not parts or parts[0] == "/" or ".." in parts or not _is_path(name):
            raise UserError(f"{path} lists {name!r}, which is not a path inside the corpus", remedy)
        if not is_utf8(name):
            raise UserError(f"{path} lists {name!r}, which is not UTF-8", "rename the module's files and this entry")
    return description


def _is_path(name: str) -> bool:
    """Whether the system takes it: no NUL, and no lone surrogate, which only JSON can spell."""
    try:
        return b"\0" not in os.fsencode(name)
    except ValueError:
        return False


def _is_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _problem(module: Module) -> str | None:
    """What is wrong with a module's files, None if nothing."""
    if problem := file_problem(module.bitcode):
        return f"{module.name}.bc {problem}"
    if module.command_override is None and not _has_bytes(module.cmd):
        return f"{module.name}.cmd is missing or empty"
    index = module.thinlto_index
    # One without a byte is whole: the linker's word that nothing is to be imported.
    if index is not None and not _is_empty(index) and (problem := file_problem(index)):
        return f"{module.name}.thinlto.bc {problem}"
    return None


def file_problem(bitcode: Path) -> str | None:
    """What is wrong with a file of bitcode, None if nothing; see `bitcode_problem` for what is looked at."""
    try:
        file = open_regular(bitcode)
    except (FileNotFoundError, NotADirectoryError):
        return "is missing"
    except OSError as error:
        return error.strerror if error.errno == 0 else f"cannot be read: {error.strerror}"
    except ValueError:
        return "is not a path"
    try:
        return bitcode_problem(lambda offset, length: os.pread(file, length, offset), os.fstat(file).st_size)
    finally:
        os.close(file)


def _is_empty(path: Path) -> bool:
    return path.is_file() and path.stat().st_size == 0


def _has_bytes(path: Path) -> bool:
    try:
        status = os.stat(path)
        return stat.S_ISREG(status.st_mode) and status.st_size > 0
    except OSError:
        return False
