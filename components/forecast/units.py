"""Units of a forecast: the modules of a corpus, or the sources of a compile_commands.json."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from components.core import problems
from components.core.compiler.clang_programs import clangxx
from components.core.compiler.replay.command_line import replay_arguments, require_replayable
from components.core.compiler.source_language import Language, source_language
from components.core.formats.corpus import Module, load_corpus
from components.core.formats.names import is_utf8
from components.core.projects.compile_commands import compile_of, directory_of
from components.core.projects.compiler_command import CompileCommand, NoObjectError
from components.platform.console import say
from components.platform.errors import UserError
from components.platform.storage.input_files import MissingFile, read_json

Linkage = Literal["shared library", "program", "program at fixed addresses"]
"""Kind of file that an object was compiled for."""
_INLINING = problems.get("inlining")
_FORM = tuple(
    """
    -c -fno-lto -fno-whole-program-vtables -fno-virtual-function-elimination -fno-sanitize=cfi -g0 -w -Qunused-arguments
    """.split()
)
"""Flags of a compile to an object that is only measured, without what needs LTO. Debug data would fill the disk."""
_ASSEMBLY = (".s", ".S", ".sx", ".asm")
_PRECOMPILED = (".pch", ".gch", ".pcm")
_INCLUDE_PCH = "-include-pch"
_CROSS = re.compile(
    r"(?P<target>(?P<machine>x86_64|i[3-6]86|aarch64\w*|arm\w*|riscv\d+|powerpc\w*|mips\w*|s390x|loongarch\d+|sparc\w*)"
    r"-[\w.-]+)-(?:gcc|g\+\+|cc|c\+\+|clang|clang\+\+)(?:-[\d.]+)?"
)
"""Names of cross compilers, such as aarch64-linux-gnu-gcc-12."""
_PIC = re.compile(r"-f(?P<no>no-)?(?P<kind>pic|pie)", re.IGNORECASE)
_DATABASE_REMEDY = "pass the compile_commands.json of a configured build, or a corpus: --corpus DIR"


class Unit(Protocol):
    """Code that compiles to one object."""

    @property
    def name(self) -> str:
        """Name for messages."""

    @property
    def language(self) -> Language:
        """Language of the source."""

    @property
    def linkage(self) -> Linkage:
        """Kind of file that the object is for."""

    @property
    def directory(self) -> Path | None:
        """Directory that the compiler runs in; None for any."""

    def command(self, clang: Path, flags: Sequence[str], output: Path) -> list[str]:
        """Return the command that compiles to `output`.

        Args:
            flags: flags of cc1 that follow the unit's own.
        """

    def without(self, options: Sequence[str]) -> Unit:
        """Return the unit without some of its options, which the compiler does not have."""


@dataclass(frozen=True)
class CorpusUnit:
    """A module of a corpus."""

    module: Module

    @property
    def name(self) -> str:
        return self.module.name

    @property
    def language(self) -> Language:
        return source_language(self.module.arguments(), self.module.name)

    @property
    def linkage(self) -> Linkage:
        arguments = self.module.arguments()
        if "-pic-level" not in arguments:
            return "program at fixed addresses"
        return "program" if "-pic-is-pie" in arguments else "shared library"

    @property
    def directory(self) -> Path | None:
        return None

    def command(self, clang: Path, flags: Sequence[str], output: Path) -> list[str]:
        module = self.module
        recorded = module.arguments()
        options = flags if recorded[0] == "-cc1" else _to_driver(flags)
        return [
            str(clang),
            *replay_arguments(
                recorded, module.bitcode, output, options, module.thinlto_index, corpus=module.directory, clang=clang
            ),
        ]

    def without(self, options: Sequence[str]) -> Unit:
        return self


@dataclass(frozen=True)
class SourceUnit:
    """A source file with the command that compiles it, by any compiler whose options clang takes.

    Attributes:
        source: path of the source, as the database spells it.
        root: absolute path of the directory that names are relative to: the database's.
    """

    source: str
    compile: CompileCommand
    root: str

    @property
    def name(self) -> str:
        return os.path.relpath(self.object, self.root)

    @property
    def object(self) -> str:
        return self.compile.object

    @property
    def compiler(self) -> str:
        """Path of the compiler; "" if the command names none."""
        program = self.compile.program
        return os.path.join(self.compile.directory, program) if "/" in program else ""

    @property
    def language(self) -> Language:
        return source_language(self.compile.arguments, self.source)

    @property
    def linkage(self) -> Linkage:
        found = [match for argument in self.compile.arguments if (match := _PIC.fullmatch(argument))]
        if not found:
            return "program"  # clang's default on Linux
        if found[-1]["no"]:
            return "program at fixed addresses"
        return "shared library" if found[-1]["kind"].lower() == "pic" else "program"

    @property
    def directory(self) -> Path | None:
        return Path(self.compile.directory)

    def command(self, clang: Path, flags: Sequence[str], output: Path) -> list[str]:
        driver = clangxx(clang) if "++" in Path(self.compile.program).name else clang
        size = [_INLINING.optimization, *_FORM, *_to_driver(flags), "-o", str(output)]
        own = [*_target(self.compile), *_without_precompiled(self.compile)]
        at = own.index("--") if "--" in own else len(own)
        return [str(driver), *own[:at], *size, *own[at:]]

    def without(self, options: Sequence[str]) -> Unit:
        kept = tuple(word for word in self.compile.arguments if word not in options)
        command = CompileCommand(self.compile.directory, self.compile.program, kept, self.compile.output)
        return SourceUnit(self.source, command, self.root)


def _target(command: CompileCommand) -> list[str]:
    match = _CROSS.fullmatch(os.path.basename(command.program))
    if not match or (match["machine"] == os.uname().machine and "linux" in match["target"]):
        return []
    return [f"--target={match['target']}"]


def _without_precompiled(command: CompileCommand) -> Iterator[str]:
    """Yield the arguments of a compile that does not use precompiled headers, which are of one compiler and level.

    CMake includes the header, too, after the precompiled one. clang's driver uses HEADER.pch for -include HEADER if it
    exists, which its compiler cc1 does not.
    """
    words = list(command.arguments)
    at = 0
    while at < len(words):
        if words[at : at + 2] == ["-Xclang", _INCLUDE_PCH]:
            at += 4
            continue
        if words[at] == "-include" and at + 1 < len(words):
            header = words[at + 1]
            if os.path.exists(os.path.join(command.directory, f"{header}.pch")):
                yield from ("-Xclang", "-include", "-Xclang", header)
                at += 2
                continue
        yield words[at]
        at += 1


def _to_driver(flags: Iterable[str]) -> list[str]:
    return [word for flag in flags for word in ("-Xclang", flag)]


def corpus_units(directory: Path) -> list[Unit]:
    """Return the modules of a corpus that were compiled for size; print how many were not.

    Raises:
        UserError: the directory is no corpus, no module was compiled for size, or one has options that are refused.
    """
    modules = load_corpus(directory).modules
    level = re.compile(_INLINING.cmd_filter or "")
    kept = [module for module in modules if any(map(level.search, module.arguments()))]
    if not kept:
        raise UserError(
            f"none of the {len(modules)} modules in {directory} was compiled at -Os or -Oz, where the policy decides",
            "pass the build instead, which is compiled at -Oz: --compile-commands FILE",
        )
    if len(kept) < len(modules):
        say(f"left out: {len(modules) - len(kept)} of {len(modules)} modules that were not compiled at -Os or -Oz")
    require_replayable(kept)
    return [CorpusUnit(module) for module in kept]


def source_units(database: Path) -> list[SourceUnit]:
    """Return the compiles of C and C++ in a compile_commands.json, each object once.

    Raises:
        UserError: the file is no compilation database, or compiles no C or C++.
    """
    try:
        entries = read_json(database, _DATABASE_REMEDY)
    except MissingFile:
        raise UserError(f"there is no {database}", _DATABASE_REMEDY) from None
    if not isinstance(entries, list):
        raise UserError(f"{database} is not a compilation database: not a list", _DATABASE_REMEDY)
    units: dict[str, SourceUnit] = {}
    for entry in entries:
        unit = _source_unit(entry, database) if isinstance(entry, dict) else None
        if unit is not None:
            units.setdefault(unit.object, unit)
    if not units:
        raise UserError(f"none of the {len(entries)} entries of {database} compiles C or C++", _DATABASE_REMEDY)
    return list(units.values())


def _source_unit(entry: dict[str, Any], database: Path) -> SourceUnit | None:
    source = entry.get("file")
    try:
        directory = directory_of(entry, database)
        command = compile_of(entry, directory)
    except NoObjectError:
        return None
    if not isinstance(source, str) or source == "-" or source.endswith(_ASSEMBLY):
        return None
    words = "".join((source, command.directory, command.program, command.output, *command.arguments))
    if command.output.endswith(_PRECOMPILED) or "\0" in words or not is_utf8(words):
        return None
    unit = SourceUnit(source, command, os.path.abspath(database.parent))
    return unit if unit.language in ("c", "c++") else None
