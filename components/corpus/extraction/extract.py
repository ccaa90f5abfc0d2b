"""Extraction of bitcode and command lines from object files, in-process and on several threads."""

from __future__ import annotations

import hashlib
import mmap
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from components.core.compiler.objects.archive import ArchiveError, is_archive, read_members
from components.core.compiler.objects.elf import LINKED_TYPES, Elf, ElfError
from components.core.compiler.objects.object_file import ForeignObject, open_foreign
from components.core.formats.bitcode import BitcodeError, producer_major, read_layout, reader
from components.core.formats.links import embedded_digest
from components.core.projects.extraction_options import ThinLto
from components.corpus.extraction.compiler_used import CompilerUsed, RestoreError
from components.corpus.extraction.file_io import read, write
from components.corpus.extraction.outcome import Outcome, describe_newer_llvm
from components.corpus.extraction.own_options import strip_own_options
from components.corpus.outcome_kind import OutcomeKind
from components.corpus.sources.objects import ObjectFile
from components.corpus.sources.thinlto import INDEX_SUFFIX, MISSING_INDEX_WARNING, copy_saved, index_of
from components.platform.errors import UserError
from components.platform.processes.cgroup import available_processors
from components.platform.storage.input_files import open_regular

_COUNTERS = ("-coverage-data-file", "-femit-coverage-data", "-fprofile-arcs")
"""cc1's options for gcov's counters, by any LLVM: the first one names a file of the build and has no use without it."""
_EMBED = "-Xclang -fembed-bitcode=all"


@dataclass(frozen=True)
class ExtractConfig:
    """Options of an extraction.

    Attributes:
        cmd_filter: regular expression; a module is skipped if it matches none of its cc1 arguments. None: keep all.
        cmd_section: name of the ELF section in which -fembed-bitcode=all writes the arguments.
        bitcode_section: name of the ELF section in which -fembed-bitcode=all writes the bitcode.
        num_workers: number of threads; None: one per processor that this process may use.
        max_llvm_major: skip modules that a newer LLVM compiled; None: keep all.
        thinlto: kind of the ThinLTO build, if the objects come from one; then each module's index is extracted, too.
    """

    cmd_filter: str | None = None
    cmd_section: str = ".llvmcmd"
    bitcode_section: str = ".llvmbc"
    num_workers: int | None = None
    max_llvm_major: int | None = None
    thinlto: ThinLto | None = None


def compile_filter(cmd_filter: str | None) -> re.Pattern[str] | None:
    """Return the pattern of a cmd_filter, None for None. UserError if it is not a regular expression."""
    try:
        return None if cmd_filter is None else re.compile(cmd_filter)
    except re.error as error:
        problem = f"--cmd-filter {cmd_filter!r} is not a regular expression: {error}"
        raise UserError(problem, "see https://docs.python.org/3/library/re.html") from None


def extract_objects(objects: list[ObjectFile], output: Path, config: ExtractConfig) -> list[Outcome]:
    """Write <name>.bc and <name>.cmd below `output` for every object that has them.

    The files have the bytes that llvm-objcopy --dump-section writes, without this project's options in the arguments,
    and with functions and variables kept that the source declares __attribute__((used)), see compiler_used.py.
    With ThinLTO, <name>.thinlto.bc is written, too; with local ThinLTO, <name>.cmd is not. The modules of an object
    that was linked from several ones (`ld -r`, a program) are <name>.1, <name>.2 and so on; those of an archive are
    <name>/<member>. They are not extracted again if another object is the same module.

    Returns:
        The outcomes in the order of `objects`; they also describe what is wrong with single objects.

    Raises:
        UserError: cmd_filter is not a regular expression.
    """
    pattern = compile_filter(config.cmd_filter)
    outcomes: list[list[Outcome]] = [[] for _ in objects]
    workers = max(1, min(config.num_workers or available_processors(), len(objects)))

    def work(first: int) -> None:
        for index in range(first, len(objects), workers):
            outcomes[index] = _Extraction(objects[index], str(output), config, pattern).run()

    # One task per thread, not per object: extracting an object takes less time than submitting a task.
    with ThreadPoolExecutor(workers) as pool:
        for task in [pool.submit(work, first) for first in range(workers)]:
            task.result()
    return _without_duplicates(objects, outcomes, str(output))


def _without_duplicates(
    objects: Sequence[ObjectFile], outcomes: Sequence[Sequence[Outcome]], output: str
) -> list[Outcome]:
    """Remove modules of linked objects and archives that are also extracted from an object of their own."""

    def is_part(item: ObjectFile, outcome: Outcome) -> bool:
        return outcome.kind == OutcomeKind.EXTRACTED and outcome.object.name != item.name

    if not any(is_part(item, o) for item, parts in zip(objects, outcomes, strict=True) for o in parts):
        return [outcome for parts in outcomes for outcome in parts]
    first: dict[bytes, str] = {}

    def other(outcome: Outcome) -> str:
        name = outcome.object.name
        return first.setdefault(hashlib.sha256(read(f"{output}/{name}.bc")).digest(), name)

    for item, parts in zip(objects, outcomes, strict=True):
        for outcome in parts:
            if outcome.kind == OutcomeKind.EXTRACTED and not is_part(item, outcome):
                other(outcome)
    result: list[Outcome] = []
    for item, parts in zip(objects, outcomes, strict=True):
        for outcome in parts:
            if is_part(item, outcome) and (same := other(outcome)) != outcome.object.name:
                for suffix in (".bc", ".cmd", INDEX_SUFFIX):
                    Path(f"{output}/{outcome.object.name}{suffix}").unlink(missing_ok=True)
                outcome = Outcome(outcome.object, OutcomeKind.DUPLICATE, f"the same module as {same}")
            result.append(outcome)
    return result


@dataclass(frozen=True, slots=True)
class _Extraction:
    """The extraction of one object, linked file or archive.

    Attributes:
        output: directory of the corpus.
        pattern: the compiled cmd_filter.
        nested: whether the object is a member of an archive.
    """

    item: ObjectFile
    output: str
    config: ExtractConfig
    pattern: re.Pattern[str] | None
    nested: bool = False

    def run(self) -> list[Outcome]:
        """Extract the modules and return their outcomes, or a single one that says why there is none."""
        item = self.item
        if self.config.thinlto == "local":
            return [copy_saved(item, self.output)]
        try:
            file = open_regular(item.path)
        except FileNotFoundError:
            return [Outcome(item, OutcomeKind.MISSING, "the object does not exist")]
        except OSError as error:
            return [Outcome(item, OutcomeKind.FAILED, error.strerror or str(error))]
        try:
            if os.fstat(file).st_size == 0:
                return [Outcome(item, OutcomeKind.FAILED, "the object is an empty file")]
            # Unmapped when its last view is gone; closing it here would fail while an error's traceback holds a view.
            view = memoryview(mmap.mmap(file, 0, access=mmap.ACCESS_READ))
            return self._archive(view) if is_archive(view) and not self.nested else self._object(view)
        finally:
            os.close(file)

    def _archive(self, view: memoryview) -> list[Outcome]:
        item = self.item
        try:
            members = read_members(view, item.path)
        except ArchiveError as error:
            return [Outcome(item, OutcomeKind.FAILED, f"the archive {error}")]
        outcomes: list[Outcome] = []
        for member in members:
            path = member.path or f"{item.path}({member.name})"
            extraction = replace(self, item=replace(item, path=path, name=f"{item.name}/{member.name}"), nested=True)
            outcomes += extraction.run() if member.content is None else extraction._object(member.content)
        if any(outcome.kind not in (OutcomeKind.NO_BITCODE, OutcomeKind.OTHER_COMPILER) for outcome in outcomes):
            return outcomes
        return [Outcome(item, OutcomeKind.NO_BITCODE, f"none of the archive's {len(members)} members has bitcode")]

    def _object(self, view: memoryview) -> list[Outcome]:
        item = self.item
        try:
            if (foreign := open_foreign(view)) is not None:
                return self._foreign(foreign)
            elf = Elf(view)
            command = elf.joined_sections(self.config.cmd_section)
            bitcode = elf.joined_sections(self.config.bitcode_section)
            if not command or not bitcode:
                return [self._without_bitcode(elf, self._missing(command, bitcode))]
            read_at = reader(bitcode)
            modules = read_layout(read_at, len(bitcode))
        except ElfError as error:
            lto = "; compile it without -flto" if "bitcode" in error.problem else ""
            return [Outcome(item, OutcomeKind.FAILED, f"{error.problem}{lto}")]
        except BitcodeError as error:
            return [Outcome(item, OutcomeKind.FAILED, f"its bitcode {error}")]
        commands = _split_commands(command)
        if len(commands) != len(modules):
            counts = f"its sections have {len(modules)} modules and the arguments of {len(commands)}"
            return [Outcome(item, OutcomeKind.FAILED, f"{counts}; compile all of its sources with {_EMBED}")]
        if len(modules) == 1:
            used = CompilerUsed(elf, [bitcode])
            outcome = self._module(item, command, bitcode, producer_major(read_at, modules[0]), used)
            extracted = outcome.kind == OutcomeKind.EXTRACTED
            return [replace(outcome, digest=embedded_digest(bitcode, command)) if extracted else outcome]
        parts = [replace(item, name=f"{item.name}.{number}") for number in range(1, len(modules) + 1)]
        contents = [bitcode[module.start : module.end] for module in modules]
        used = CompilerUsed(elf, contents)
        return [
            self._module(part, arguments, content, producer_major(read_at, module), used)
            for part, arguments, content, module in zip(parts, commands, contents, modules, strict=True)
        ]

    def _foreign(self, foreign: ForeignObject) -> list[Outcome]:
        """Extract the module of a Mach-O or COFF object. What it declares used, its object does not tell."""
        bitcode, command = map(foreign.contents, foreign.EMBEDDED)
        if not bitcode or not command:
            absent = foreign.EMBEDDED[0] if not bitcode else foreign.EMBEDDED[1]
            return [Outcome(self.item, OutcomeKind.NO_BITCODE, f"no section {absent}")]
        read_at = reader(bitcode)
        modules = read_layout(read_at, len(bitcode))
        if len(modules) != 1:
            problem = f"it has {len(modules)} modules; compile its sources one at a time"
            return [Outcome(self.item, OutcomeKind.FAILED, problem)]
        return [self._module(self.item, command, bitcode, producer_major(read_at, modules[0]), None)]

    def _without_bitcode(self, elf: Elf, missing: str) -> Outcome:
        """Return why an object has no bitcode."""
        if self.item.assembly:
            return Outcome(self.item, OutcomeKind.ASSEMBLY, missing)
        if elf.type in LINKED_TYPES:
            return Outcome(self.item, OutcomeKind.LINKED, f"it is a linked program or library, {missing}")
        compilers = bytes(elf.section(".comment") or b"").decode("utf-8", "replace").strip("\0").split("\0")
        if any(compilers) and not any("clang" in compiler for compiler in compilers):
            return Outcome(self.item, OutcomeKind.OTHER_COMPILER, f"{missing}; it was compiled by {compilers[0]:.80}")
        return Outcome(self.item, OutcomeKind.NO_BITCODE, missing)

    def _missing(self, command: memoryview | None, bitcode: memoryview | None) -> str:
        sections = (self.config.cmd_section, command), (self.config.bitcode_section, bitcode)
        absent = [f"no section {name}" for name, section in sections if section is None]
        empty = [f"an empty section {name}" for name, section in sections if section is not None and not section]
        return f"{' and '.join(absent + empty)}{f'; compile it with {_EMBED}' if empty else ''}"

    def _module(
        self, item: ObjectFile, command: memoryview, bitcode: memoryview, llvm_major: int, used: CompilerUsed | None
    ) -> Outcome:
        """Write the files of a module.

        Args:
            llvm_major: version of the LLVM that compiled it, 0 if unknown.
            used: restores what the module declares used, from its object or a file that was linked from it; None if
                that is unknown.
        """
        config = self.config
        if config.max_llvm_major is not None and llvm_major > config.max_llvm_major:
            return Outcome(item, OutcomeKind.NEWER_LLVM, describe_newer_llvm([llvm_major], config.max_llvm_major))
        arguments = bytes(command).decode("utf-8", "surrogateescape").split("\0")
        if self.pattern is not None and not any(self.pattern.search(argument) for argument in arguments):
            level = next((argument for argument in reversed(arguments) if argument.startswith("-O")), "none")
            detail = f"no argument matches {self.pattern.pattern}; its optimization level is {level}"
            return Outcome(item, OutcomeKind.FILTERED, detail)
        if counters := [argument for argument in arguments if argument.startswith(_COUNTERS)]:
            detail = f"{counters[0].partition('=')[0]}: a replay adds no counters; compile it without --coverage"
            return Outcome(item, OutcomeKind.INSTRUMENTED, detail)
        restored: bytes | memoryview = bitcode
        try:
            restored = used.restore(bitcode) if used else bitcode
        except RestoreError as error:
            return Outcome(item, OutcomeKind.NOT_RESTORED, str(error))
        except ElfError:  # without a symbol table, as strip leaves it, nothing is known
            pass
        base = f"{self.output}/{item.name}"
        if config.thinlto is not None:
            path = index_of(arguments, item.directory)
            if path is None:
                return Outcome(item, OutcomeKind.NO_INDEX, "compiled without -fthinlto-index=")
            try:
                index = read(path)
            except OSError as error:
                return Outcome(item, OutcomeKind.NO_INDEX, f"cannot read its index: {error}")
            write(f"{base}{INDEX_SUFFIX}", index)
        cleaned = strip_own_options(arguments)
        write(f"{base}.cmd", "\0".join(cleaned).encode("utf-8", "surrogateescape") if cleaned != arguments else command)
        write(f"{base}.bc", restored)
        warning = MISSING_INDEX_WARNING if config.thinlto is None and index_of(arguments, "") else ""
        return Outcome(item, OutcomeKind.EXTRACTED, warning, llvm_major)


def _split_commands(section: memoryview) -> list[memoryview]:
    """Split the arguments of several modules; those of each begin with -cc1."""
    text = bytes(section)
    starts = [0]
    while (at := text.find(b"\0-cc1\0", starts[-1])) >= 0:
        starts.append(at + 1)
    return [section[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=True)]
