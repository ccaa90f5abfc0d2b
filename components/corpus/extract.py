"""Pulls bitcode and command lines out of object files, in-process and on several threads."""

from __future__ import annotations

import mmap
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from components.compiler.elf import Elf, ElfError
from components.console import UserError
from components.corpus.files import read, write
from components.corpus.objects import ObjectFile
from components.corpus.outcome import ASSEMBLY, EXTRACTED, FAILED, FILTERED, MISSING, NO_BITCODE, NO_INDEX, Outcome
from components.corpus.thinlto import INDEX, INDEX_LOST, ThinLto, copy_saved, index_of
from components.formats.bitcode import bitcode_problem
from components.storage.input_files import open_regular


@dataclass(frozen=True)
class ExtractConfig:
    """What is extracted.

    cmd_filter: a regular expression; modules of which no single cc1 argument matches are left out. None: all stay.
    cmd_section, bitcode_section: names of the ELF sections that -fembed-bitcode=all writes.
    num_workers: threads; None: as many as this process has processors.
    thinlto: how ThinLTO compiled the objects, if it did; then each module's index is extracted, too.
    """

    cmd_filter: str | None = None
    cmd_section: str = ".llvmcmd"
    bitcode_section: str = ".llvmbc"
    num_workers: int | None = None
    thinlto: ThinLto | None = None


def extract_objects(objects: list[ObjectFile], output: Path, config: ExtractConfig) -> list[Outcome]:
    """Write <name>.bc and <name>.cmd below `output` for every object that has them; outcomes in the objects' order.

    The files have the bytes that llvm-objcopy --dump-section writes. With ThinLTO there is also <name>.thinlto.bc, and
    if it was local, there is no <name>.cmd. Raises `UserError` for a regular expression that is none; whatever is wrong
    with single objects is in their outcomes.
    """
    try:
        pattern = None if config.cmd_filter is None else re.compile(config.cmd_filter)
    except re.error as error:
        problem = f"--cmd-filter {config.cmd_filter!r} is not a regular expression: {error}"
        raise UserError(problem, "see https://docs.python.org/3/library/re.html") from None
    outcomes: list[Outcome | None] = [None] * len(objects)
    workers = max(1, min(config.num_workers or len(os.sched_getaffinity(0)), len(objects)))

    def work(first: int) -> None:
        for index in range(first, len(objects), workers):
            outcomes[index] = _extract(objects[index], str(output), config, pattern)

    # One task a thread, not one an object: an object takes less time than handing it to a thread.
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
        return Outcome(item, MISSING, "the object does not exist: was it built?")
    except OSError as error:
        return Outcome(item, FAILED, error.strerror or str(error))
    try:
        if os.fstat(file).st_size == 0:
            return Outcome(item, FAILED, "the object is an empty file")
        # Unmapped when the last view of it is gone; closing it here would fail while an error's traceback has one.
        view = memoryview(mmap.mmap(file, 0, access=mmap.ACCESS_READ))
        return _extract_from(view, item, output, config, pattern, absent)
    except ElfError as error:
        return Outcome(item, FAILED, error.problem)
    finally:
        os.close(file)


def _extract_from(
    view: memoryview, item: ObjectFile, output: str, config: ExtractConfig, pattern: re.Pattern[str] | None, absent: str
) -> Outcome:
    elf = Elf(view)
    command, bitcode = elf.section(config.cmd_section), elf.section(config.bitcode_section)
    missing = [
        name
        for name, section in ((config.cmd_section, command), (config.bitcode_section, bitcode))
        if not section
    ]
    if not command or not bitcode:
        return Outcome(item, absent, f"no section {' and no section '.join(missing)}")
    arguments = bytes(command).decode("utf-8", "surrogateescape").split("\0")
    if pattern is not None and not any(pattern.search(argument) for argument in arguments):
        return Outcome(item, FILTERED, f"no argument matches {pattern.pattern}")
    if problem := bitcode_problem(lambda offset, length: bytes(bitcode[offset : offset + length]), len(bitcode)):
        return Outcome(item, FAILED, f"the bitcode in it {problem}")
    base = f"{output}/{item.name}"
    if config.thinlto is not None:
        path = index_of(arguments, item.directory)
        if path is None:
            return Outcome(item, NO_INDEX, "compiled without -fthinlto-index=")
        try:
            index = read(path)
        except OSError as error:
            return Outcome(item, NO_INDEX, f"its index: {error}")
        write(f"{base}{INDEX}", index)
    write(f"{base}.cmd", command)
    write(f"{base}.bc", bitcode)
    return Outcome(item, EXTRACTED, INDEX_LOST if config.thinlto is None and index_of(arguments, "") else "")
