"""Extraction of bitcode and command lines from object files, in-process and on several threads."""

from __future__ import annotations

import mmap
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from components.core.compiler.elf import Elf, ElfError
from components.core.console import UserError
from components.core.formats.bitcode import bitcode_problem
from components.core.processes.cgroup import available_processors
from components.core.storage.input_files import open_regular
from components.corpus.outcome import ASSEMBLY, EXTRACTED, FAILED, FILTERED, MISSING, NO_BITCODE, NO_INDEX, Outcome
from components.corpus.sources.objects import ObjectFile
from components.corpus.sources.thinlto import INDEX_SUFFIX, MISSING_INDEX_WARNING, ThinLto, copy_saved, index_of
from components.corpus.whole_files import read, write


@dataclass(frozen=True)
class ExtractConfig:
    """Options of an extraction.

    Attributes:
        cmd_filter: regular expression; a module is skipped if it matches none of its cc1 arguments. None: keep all.
        cmd_section: name of the ELF section in which -fembed-bitcode=all writes the arguments.
        bitcode_section: name of the ELF section in which -fembed-bitcode=all writes the bitcode.
        num_workers: number of threads; None: one per processor that this process may use.
        thinlto: kind of the ThinLTO build, if the objects come from one; then each module's index is extracted, too.
    """

    cmd_filter: str | None = None
    cmd_section: str = ".llvmcmd"
    bitcode_section: str = ".llvmbc"
    num_workers: int | None = None
    thinlto: ThinLto | None = None


def extract_objects(objects: list[ObjectFile], output: Path, config: ExtractConfig) -> list[Outcome]:
    """Write <name>.bc and <name>.cmd below `output` for every object that has them.

    The files have the bytes that llvm-objcopy --dump-section writes. With ThinLTO, <name>.thinlto.bc is written, too;
    with local ThinLTO, <name>.cmd is not.

    Returns:
        The outcomes in the order of `objects`; they also describe what is wrong with single objects.

    Raises:
        UserError: cmd_filter is not a regular expression.
    """
    try:
        pattern = None if config.cmd_filter is None else re.compile(config.cmd_filter)
    except re.error as error:
        problem = f"--cmd-filter {config.cmd_filter!r} is not a regular expression: {error}"
        raise UserError(problem, "see https://docs.python.org/3/library/re.html") from None
    outcomes: list[Outcome | None] = [None] * len(objects)
    workers = max(1, min(config.num_workers or available_processors(), len(objects)))

    def work(first: int) -> None:
        for index in range(first, len(objects), workers):
            outcomes[index] = _extract(objects[index], str(output), config, pattern)

    # One task per thread, not per object: extracting an object takes less time than submitting a task.
    with ThreadPoolExecutor(workers) as pool:
        for task in [pool.submit(work, first) for first in range(workers)]:
            task.result()
    return [outcome for outcome in outcomes if outcome is not None]


def _extract(item: ObjectFile, output: str, config: ExtractConfig, pattern: re.Pattern[str] | None) -> Outcome:
    if config.thinlto == "local":
        return copy_saved(item, output)
    absent = ASSEMBLY if item.assembly else NO_BITCODE
    try:
        file = open_regular(item.path)
    except FileNotFoundError:
        return Outcome(item, MISSING, "the object does not exist; build it first")
    except OSError as error:
        return Outcome(item, FAILED, error.strerror or str(error))
    try:
        if os.fstat(file).st_size == 0:
            return Outcome(item, FAILED, "the object is an empty file")
        # Unmapped when its last view is gone; closing it here would fail while an error's traceback holds a view.
        view = memoryview(mmap.mmap(file, 0, access=mmap.ACCESS_READ))
        return _extract_sections(view, item, output, config, pattern, absent)
    except ElfError as error:
        return Outcome(item, FAILED, error.problem)
    finally:
        os.close(file)


def _extract_sections(
    view: memoryview, item: ObjectFile, output: str, config: ExtractConfig, pattern: re.Pattern[str] | None, absent: str
) -> Outcome:
    elf = Elf(view)
    command, bitcode = elf.section(config.cmd_section), elf.section(config.bitcode_section)
    missing = [
        name for name, section in ((config.cmd_section, command), (config.bitcode_section, bitcode)) if not section
    ]
    if not command or not bitcode:
        return Outcome(item, absent, f"no section {' and no section '.join(missing)}")
    arguments = bytes(command).decode("utf-8", "surrogateescape").split("\0")
    if pattern is not None and not any(pattern.search(argument) for argument in arguments):
        level = next((argument for argument in reversed(arguments) if argument.startswith("-O")), "none")
        return Outcome(item, FILTERED, f"no argument matches {pattern.pattern}; its optimization level is {level}")
    if problem := bitcode_problem(lambda offset, length: bytes(bitcode[offset : offset + length]), len(bitcode)):
        return Outcome(item, FAILED, f"its bitcode {problem}")
    base = f"{output}/{item.name}"
    if config.thinlto is not None:
        path = index_of(arguments, item.directory)
        if path is None:
            return Outcome(item, NO_INDEX, "compiled without -fthinlto-index=")
        try:
            index = read(path)
        except OSError as error:
            return Outcome(item, NO_INDEX, f"cannot read its index: {error}")
        write(f"{base}{INDEX_SUFFIX}", index)
    write(f"{base}.cmd", command)
    write(f"{base}.bc", bitcode)
    return Outcome(item, EXTRACTED, MISSING_INDEX_WARNING if config.thinlto is None and index_of(arguments, "") else "")
