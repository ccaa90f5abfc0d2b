"""Modules of whole programs: what lld resolved in the links of a build, before any optimization."""

from __future__ import annotations

import itertools
import mmap
import os
import re
import shutil
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from components.core.compiler.objects.archive import ArchiveError, is_archive, read_members
from components.core.compiler.objects.elf import ET_REL, elf_type
from components.core.formats.bitcode import (
    BitcodeError,
    bitcode_problem,
    is_bitcode,
    producer_major,
    read_layout,
    reader,
)
from components.core.formats.bitcode_symbols import read_symbols
from components.core.formats.corpus import PROGRAM_ARGUMENTS
from components.core.projects.link_recorder.recorder import RecordedLink, input_files
from components.corpus.extraction.extract import compile_filter
from components.corpus.extraction.file_io import read, write
from components.corpus.extraction.outcome import Outcome, describe_newer_llvm
from components.corpus.extraction.own_options import strip_own_options
from components.corpus.outcome_kind import OutcomeKind
from components.corpus.sources.objects import ObjectFile, locate_object
from components.platform.console import say
from components.platform.storage.manifest import list_names

_ERROR = re.compile(r"^.*?\berror: (.*(?:\n>>> .*)*)", re.MULTILINE)
_OUT_OF_MEMORY = re.compile(r"out of memory|cannot allocate memory|bad_alloc", re.IGNORECASE)
_MAX_MESSAGE = 300
_MAX_UNREADABLE = 3

_VECTORIZE = {"-Os": ("-vectorize-loops", "-vectorize-slp"), "-Oz": ("-vectorize-slp",)}
"""What clang's driver adds for a level."""


@dataclass(frozen=True)
class ProgramConfig:
    """Options of an extraction of programs.

    Attributes:
        cmd_filter: regular expression; a module is skipped if it matches none of its cc1 arguments. None: keep all.
        max_llvm_major: skip modules that a newer LLVM wrote; None: keep all.
        only: real paths of the linked files to extract; None: all.
    """

    cmd_filter: str | None = None
    max_llvm_major: int | None = None
    only: frozenset[str] | None = None


@dataclass(frozen=True)
class Programs:
    """What was extracted.

    Attributes:
        native: module -> inputs of the program without bitcode, which remain native code.
        shared_functions: number of functions that several programs have, and of all.
    """

    outcomes: list[Outcome]
    native: dict[str, list[str]]
    shared_functions: tuple[int, int]


def extract_programs(
    links: Sequence[RecordedLink], output: Path, config: ProgramConfig, base: Path | None = None, prefix: str = ""
) -> Programs:
    """Write <name>.bc and <name>.cmd below `output` for every program and shared library that was linked.

    Args:
        base: directory that modules' names are relative to; None: the one that has all linked files.
        prefix: of the modules' names, such as "project/".

    Raises:
        UserError: cmd_filter is not a regular expression.
    """
    pattern = compile_filter(config.cmd_filter)
    if config.only is not None:
        links = [link for link in links if link.status != 0 or os.path.realpath(link.output) in config.only]
    if base is None and links:
        base = Path(os.path.commonpath([os.path.dirname(link.output) for link in links]))
    outcomes: list[Outcome] = []
    native: dict[str, list[str]] = {}
    functions: Counter[str] = Counter()
    for link in links:
        item = locate_object(link.directory, link.output, base)
        if item is None:
            outside = ObjectFile(link.output, os.path.basename(link.output), directory=link.directory)
            outcomes.append(Outcome(outside, OutcomeKind.FAILED, f"it lies outside of {base}"))
            continue
        item = ObjectFile(item.path, prefix + item.name, directory=item.directory)
        outcome, names = _extract(link, item, output, config, pattern)
        outcomes.append(outcome)
        if outcome.kind == OutcomeKind.EXTRACTED:
            functions.update(names)
            # As far as they still exist, without the system's.
            if other_inputs := [name for name, content in _objects(link) if elf_type(content) == ET_REL]:
                native[item.name] = other_inputs
    several = sum(count > 1 for count in functions.values())
    return Programs(outcomes, native, (several, len(functions)))


def announce_programs(programs: Programs) -> None:
    """Print what the programs have in common, and which have native code."""
    several, number = programs.shared_functions
    if several:
        say(f"{several} of {number} functions are in several programs")
    for module, inputs in programs.native.items():
        say(f"{module} has inputs that are not bitcode; they stay as they are, and what they use: {list_names(inputs)}")


def _extract(
    link: RecordedLink, item: ObjectFile, output: Path, config: ProgramConfig, pattern: re.Pattern[str] | None
) -> tuple[Outcome, Collection[str]]:
    if reason := _reason(link):
        return Outcome(item, *reason), ()
    assert link.module is not None
    try:
        content = read(str(link.module))
    except OSError as error:
        return Outcome(item, OutcomeKind.FAILED, error.strerror or str(error)), ()
    problem = bitcode_problem(reader(content), len(content))
    symbols = read_symbols(content)
    if problem or not symbols.triple:
        return Outcome(item, OutcomeKind.FAILED, f"its bitcode {problem or 'has no symbol table'}"), ()
    if config.max_llvm_major and symbols.llvm_major > config.max_llvm_major:
        detail = describe_newer_llvm([symbols.llvm_major], config.max_llvm_major)
        return Outcome(item, OutcomeKind.NEWER_LLVM, detail), ()
    arguments = program_arguments(link, symbols.triple)
    if pattern is not None and not any(map(pattern.search, arguments)):
        return Outcome(item, OutcomeKind.FILTERED, f"its optimization level is {link.level}"), ()
    write(f"{output}/{item.name}.cmd", "\0".join(arguments).encode("utf-8", "surrogateescape"))
    shutil.copyfile(link.module, f"{output}/{item.name}.bc")
    return Outcome(item, OutcomeKind.EXTRACTED, "", symbols.llvm_major), symbols.strong | symbols.local


def _reason(link: RecordedLink) -> tuple[str, str] | None:
    """Return why a link yields no module: kind and detail; None if it does."""
    if link.status != 0:
        if _OUT_OF_MEMORY.search(link.messages):
            return OutcomeKind.NOT_LINKED, "lld ran out of the memory that mlgo corpus compilers --memory-gib allows"
        error = _ERROR.search(link.messages)
        how = " ".join(error[1].split())[:_MAX_MESSAGE] if error else f"lld ended with status {link.status}"
        return OutcomeKind.NOT_LINKED, "; ".join([how, *_unreadable_inputs(link)[:_MAX_UNREADABLE]])
    if not link.exists:
        return OutcomeKind.REMOVED, "the linked file was moved or removed"
    if not link.linked:
        detail = "a relocatable link (-r) with inputs that are not bitcode; programs have its native code"
        return OutcomeKind.RELOCATABLE, detail
    if link.module is None:
        detail = "none of its objects is bitcode: assembly, prebuilt libraries, or another compiler's"
        return OutcomeKind.NO_BITCODE, detail
    return None


def program_arguments(link: RecordedLink, triple: str) -> tuple[str, ...]:
    """Return the cc1 arguments by which clang makes the object that lld's LTO makes of the program's module.

    All else, such as the processor and frame pointers, are attributes of the functions.
    """
    arguments = ["-cc1", "-triple", triple, link.level, *_VECTORIZE.get(link.level, ())]
    arguments += ["-mrelocation-model", "pic" if link.position_independent else "static"]
    arguments += ["-ffunction-sections", "-fdata-sections", "-faddrsig"]
    cpu = [word.partition("mcpu=")[2] for word in link.arguments if re.match(r"-?-plugin-opt=-?mcpu=", word)]
    arguments += ["-target-cpu", cpu[-1]] if cpu else []
    for option, value in itertools.pairwise(link.arguments):
        if option in ("-mllvm", "--mllvm"):
            arguments += ["-mllvm", value]
    return (*strip_own_options(arguments), *PROGRAM_ARGUMENTS)


def _unreadable_inputs(link: RecordedLink) -> list[str]:
    """Return what is wrong with bitcode that a link failed with: lld's messages do not name the file."""
    problems: list[str] = []
    majors: dict[str, int] = {}
    for name, content in _objects(link):
        if not is_bitcode(content):
            continue
        try:
            majors[name] = producer_major(reader(content), read_layout(reader(content), len(content))[0])
        except BitcodeError as error:
            problems.append(f"the bitcode {name} {error}")
    lowest = min(majors.values(), default=0)
    newer = {name: major for name, major in majors.items() if major > lowest}
    return problems + [f"{name} was compiled by LLVM {major}" for name, major in newer.items()]


def _objects(link: RecordedLink) -> Iterator[tuple[str, memoryview]]:
    """Yield the name and the content of a link's objects, also those in static libraries."""
    for path in input_files(link.arguments, link.directory):
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                continue
            view = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        name = os.path.basename(path)
        if not is_archive(view):
            yield name, view
            continue
        try:
            members = read_members(view, path)
        except ArchiveError:
            continue
        yield from ((f"{name}({item.name})", item.content) for item in members if item.content is not None)
