"""A corpus on disk: the layout that mlgo-utils' extract_ir writes and google/ml-compiler-opt reads.

    corpus_description.json   {"has_thinlto": bool, "modules": [names]}, optionally "global_command_override"
    <name>.bc                 a module's bitcode
    <name>.cmd                its NUL-terminated cc1 arguments; absent if the override replaces them for all modules
    <name>.thinlto.bc         its ThinLTO index, if has_thinlto is true

This project's corpus step also writes:

    splits.json               the training, validation and held-out modules (components.core.formats.splits)
    report.json               what was extracted and what was not, by project
    links.json                how the build linked its programs (components.core.formats.links); of builds of users

Corpora of other tools have no manifest and no splits; they load nevertheless.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from components.core.formats.bitcode import BitcodeError, bitcode_problem, producer_major, read_layout
from components.core.formats.names import is_utf8
from components.core.formats.profiles import find_profiles
from components.core.formats.splits import FILE as SPLITS_FILE
from components.core.formats.splits import SPLITS, Splits, read_splits
from components.platform.errors import UserError
from components.platform.storage.input_files import MissingFile, open_regular, read_bytes, read_json
from components.platform.workers.serialization import FileSet

DESCRIPTION = "corpus_description.json"
REPORT = "report.json"
UNSPECIFIED_OVERRIDE = "<UNSPECIFIED>"
"""The only global argument that extract_ir writes for a local ThinLTO corpus; the user must replace it."""

PROGRAM_ARGUMENTS = ("-main-file-name", "ld-temp.o")
"""The name that lld gives a linked module. A clang of this project compiles bitcode of this name by the passes by which
its lld compiles a program; other clangs compile it like any other."""

Part = Literal["train", "validation", "heldout", "all"]
_MAX_LISTED = 5


@dataclass(frozen=True)
class Module(FileSet):
    """One module of a corpus.

    Attributes:
        name: path of the object relative to the corpus, "zstd/lib/zstd.c.o".
        directory: the corpus directory.
        thinlto: whether the module has a ThinLTO index.
        command_override: the corpus's global_command_override.
    """

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

    def profiles(self) -> list[Path]:
        """Return the paths of the corpus's profiles that the arguments name."""
        if self.command_override is not None:
            return []
        return find_profiles(self.arguments(), self.cmd.parent, self.directory)

    def own_files(self) -> list[Path]:
        """Return the paths of the files that no other module has."""
        command = [] if self.command_override is not None else [self.cmd]
        return [self.bitcode, *command, *([self.thinlto_index] if self.thinlto_index else [])]

    def files(self) -> list[Path]:
        return [*self.own_files(), *self.profiles()]

    @property
    def project(self) -> str:
        """The first component of the name: "zlib" of "zlib/inflate.c.o"."""
        return project_of(self.name)

    def llvm_major(self) -> int:
        """Return the major version of the LLVM that wrote the bitcode, 0 if unknown. OSError if it cannot be read."""
        file = open_regular(self.bitcode)
        try:

            def read_at(offset: int, length: int) -> bytes:
                return os.pread(file, length, offset)

            return producer_major(read_at, read_layout(read_at, os.fstat(file).st_size)[0])
        except BitcodeError:
            return 0
        finally:
            os.close(file)

    def is_program(self) -> bool:
        """Return whether the module is a linked program or shared library, see PROGRAM_ARGUMENTS."""
        return PROGRAM_ARGUMENTS in pairwise(self.arguments())

    def arguments(self) -> tuple[str, ...]:
        """Return the module's compiler arguments.

        They are cc1 arguments, starting with "-cc1", or, only from a global_command_override, clang driver arguments
        without "-cc1". google/ml-compiler-opt distinguishes the two in the same way.
        """
        if self.command_override is not None:
            if UNSPECIFIED_OVERRIDE in self.command_override:
                raise UserError(
                    f"the corpus in {self.directory} lacks the compiler arguments of its modules: "
                    f"global_command_override is {UNSPECIFIED_OVERRIDE}",
                    "extract it again with --default-args, or write clang's arguments into that list in "
                    f"{self.directory / DESCRIPTION} and import the result with mlgo corpus import",
                )
            return self.command_override
        text = read_bytes(self.cmd).decode("utf-8", "surrogateescape")
        arguments = tuple(text.removesuffix("\0").split("\0"))
        return arguments if arguments[0] == "-cc1" or not any(arguments) else ("-cc1", *arguments)


@dataclass(frozen=True)
class Corpus:
    """A corpus in which every module has its files. `modules`: unique names, in the description's order."""

    directory: Path
    modules: tuple[Module, ...]
    description: dict[str, Any] = field(repr=False)

    def __len__(self) -> int:
        return len(self.modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.modules)

    def project_titles(self) -> dict[str, str]:
        """Return the name of each module's project for reports, by module.

        A corpus that was extracted from one build is one project, with the name that report.json has, unless some of
        its folders are held out as projects. Otherwise projects are the folders, as in `Module.project`.
        """
        name = _only_project(self.directory)
        if name and (self.directory / SPLITS_FILE).is_file() and self.splits().heldout_projects:
            name = ""
        return {module.name: name or module.project for module in self.modules}

    def splits(self) -> Splits:
        """Read the written split and check that it covers exactly this corpus's modules."""
        return read_splits(self.directory, [module.name for module in self.modules])

    def split(self, which: Part) -> tuple[Module, ...]:
        """Return the modules of one part, in the description's order; "all" needs no splits.json."""
        if which == "all":
            return self.modules
        if which not in SPLITS:
            raise ValueError(f"{which!r} is not a part of a corpus: use {', '.join(SPLITS)} or all")
        names = set(self.splits().part(which))
        return tuple(module for module in self.modules if module.name in names)


def _only_project(directory: Path) -> str:
    """Return the only project in a corpus's report.json; "" if there are several, or no report."""
    try:
        document = read_json(directory / REPORT)
    except UserError:
        return ""
    projects = document.get("projects") if isinstance(document, dict) else None
    return str(next(iter(projects))) if isinstance(projects, dict) and len(projects) == 1 else ""


def project_of(module_name: str) -> str:
    """Return the project of a module: the folder in which `build` and `combine` put the project's modules."""
    return PurePosixPath(module_name).parts[0]


def load_corpus(directory: Path) -> Corpus:
    """Read a corpus and check its description and that every module's files exist and its bitcode is not truncated.

    Raises:
        UserError: the directory is not a corpus, or has no modules; the description is corrupt; modules have missing
            files or incomplete bitcode (names the first few).
    """
    corpus, damaged = inspect_corpus(directory)
    if damaged:
        problems = list(damaged.values())
        more = f" and {len(problems) - _MAX_LISTED} more" if len(problems) > _MAX_LISTED else ""
        raise UserError(
            f"the corpus in {corpus.directory} is damaged: {'; '.join(problems[:_MAX_LISTED])}{more}",
            "make the corpus again, or leave these modules out: mlgo corpus import --skip-damaged",
        )
    return corpus


def inspect_corpus(directory: Path) -> tuple[Corpus, dict[str, str]]:
    """Read a corpus and find its damaged modules.

    Returns:
        The corpus with all modules in its description, and for each damaged one name -> what is wrong.

    Raises:
        UserError: the directory is not a corpus, or has no modules; the description is corrupt.
    """
    directory = Path(directory).absolute()  # compiles run in other working directories
    description = _read_description(directory)
    names = description["modules"]
    if not names:
        reasons = directory / REPORT
        raise UserError(
            f"the corpus in {directory} is empty: {DESCRIPTION} lists no module",
            "make it again" + (f"; {reasons} says why objects were skipped" if reasons.is_file() else ""),
        )
    override = description.get("global_command_override")
    override = None if override is None else tuple(override)
    modules = tuple(Module(name, directory, bool(description.get("has_thinlto")), override) for name in names)
    damaged = {module.name: problem for module in modules if (problem := _problem(module))}
    return Corpus(directory, modules, description), damaged


def write_description(
    directory: Path, modules: list[str], thinlto: str | None = None, command_override: list[str] | None = None
) -> None:
    """Write corpus_description.json byte for byte as mlgo-utils would.

    Args:
        thinlto: None, "distributed" or "local".
        command_override: without it, a local ThinLTO corpus gets the placeholder that the user must replace.
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
    remedy = f"make it with mlgo corpus extract ... --output {directory}"
    try:
        description = read_json(path, remedy)
    except MissingFile:
        raise UserError(f"{directory} is not a corpus: there is no {DESCRIPTION}", remedy) from None
    if not isinstance(description, dict) or not _is_list_of_strings(description.get("modules")):
        raise UserError(f'{path} has no list of module names under "modules"', remedy)
    names = description["modules"]
    override = description.get("global_command_override")
    if override is not None and not (_is_list_of_strings(override) and all(map(_is_valid_path, override))):
        raise UserError(f"{path}: global_command_override is not a list of arguments", remedy)
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{path} lists the module {twice} twice", "remove one of the two entries")
    for name in names:
        parts = PurePosixPath(name).parts
        if not parts or parts[0] == "/" or ".." in parts or not _is_valid_path(name):
            raise UserError(f"{path} lists {name!r}, which is not a path inside the corpus", remedy)
        if not is_utf8(name):
            raise UserError(f"{path} lists {name!r}, which is not UTF-8", "rename the module's files and this entry")
    return description


def _is_valid_path(name: str) -> bool:
    """Return whether the system accepts it: no NUL, and no lone surrogate, which only JSON can contain."""
    try:
        return b"\0" not in os.fsencode(name)
    except ValueError:
        return False


def _is_list_of_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _problem(module: Module) -> str | None:
    """Return what is wrong with a module's files, None if nothing is."""
    if problem := file_problem(module.bitcode):
        return f"{module.name}.bc {problem}"
    if module.command_override is None and not _has_bytes(module.cmd):
        return f"{module.name}.cmd is missing or empty"
    index = module.thinlto_index
    # An empty index is valid: the linker writes it if nothing is to be imported.
    is_empty = index is not None and index.is_file() and index.stat().st_size == 0
    if index is not None and not is_empty and (problem := file_problem(index)):
        return f"{module.name}.thinlto.bc {problem}"
    return None


def file_problem(bitcode: Path) -> str | None:
    """Return what is wrong with a bitcode file, None if nothing is; `bitcode_problem` has the checks."""
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


def _has_bytes(path: Path) -> bool:
    try:
        status = os.stat(path)
        return stat.S_ISREG(status.st_mode) and status.st_size > 0
    except OSError:
        return False
