"""Pulls bitcode and command lines out of object files, in-process and on several threads."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from components.compiler.elf import Elf, ElfError
from components.console import UserError
from components.corpus.objects import ObjectFile

EXTRACTED = "extracted"
ASSEMBLY = "assembly"
NO_BITCODE = "no_bitcode"
MISSING = "missing"
FILTERED = "filtered"
FAILED = "failed"


@dataclass(frozen=True)
class ExtractConfig:
    """What is extracted.

    cmd_filter: a regular expression; modules of which no single cc1 argument matches are left out. None: all stay.
    cmd_section, bitcode_section: names of the ELF sections that -fembed-bitcode=all writes.
    num_workers: threads; None: as many as this process has processors.
    """

    cmd_filter: str | None = None
    cmd_section: str = ".llvmcmd"
    bitcode_section: str = ".llvmbc"
    num_workers: int | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one object: `kind` is one of the constants above, `detail` says why unless it was extracted."""

    object: ObjectFile
    kind: str
    detail: str = ""


def extract_objects(
    objects: list[ObjectFile], output: Path, config: ExtractConfig
) -> list[Outcome]:
    """Write <name>.bc and <name>.cmd below `output` for every object that has them; outcomes in the objects' order.

    The files have the bytes that llvm-objcopy --dump-section writes. Raises `UserError` for a regular expression
    that is none; whatever is wrong with single objects is in their outcomes.
    """
    try:
        pattern = None if config.cmd_filter is None else re.compile(config.cmd_filter)
    except re.error as error:
        problem = f"--cmd-filter {config.cmd_filter!r} is not a regular expression: {error}"
        raise UserError(problem, "see https://docs.python.org/3/library/re.html") from None
    _make_directories(output, objects)

    outcomes: list[Outcome | None] = [None] * len(objects)
    workers = config.num_workers or len(os.sched_getaffinity(0))

    def work(first: int) -> None:
        for index in range(first, len(objects), workers):
            outcomes[index] = _extract(objects[index], str(output), config, pattern)

    # One task a thread, not one an object: an object takes less time than handing it to a thread.
    with ThreadPoolExecutor(workers) as pool:
        for task in [pool.submit(work, first) for first in range(workers)]:
            task.result()
    return [outcome for outcome in outcomes if outcome is not None]


def remove_empty_directories(directory: Path) -> None:
    """Directories that were made for objects without bitcode."""
    for folder, _, _ in os.walk(directory, topdown=False):
        if folder != str(directory) and not os.listdir(folder):
            os.rmdir(folder)


def _make_directories(output: Path, objects: Iterable[ObjectFile]) -> None:
    for folder in {os.path.dirname(item.name) for item in objects}:
        os.makedirs(output / folder, exist_ok=True)


def _extract(item: ObjectFile, output: str, config: ExtractConfig, pattern: re.Pattern[str] | None) -> Outcome:
    absent = ASSEMBLY if item.assembly else NO_BITCODE
    try:
        file = os.open(item.path, os.O_RDONLY)
    except FileNotFoundError:
        return Outcome(item, MISSING, "the object does not exist: was it built?")
    except OSError as error:
        return Outcome(item, FAILED, str(error))
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
    if pattern is not None:
        arguments = bytes(command).decode("utf-8", "surrogateescape").split("\0")
        if not any(pattern.search(argument) for argument in arguments):
            return Outcome(item, FILTERED, f"no argument matches {pattern.pattern}")
    base = f"{output}/{item.name}"
    _write(f"{base}.cmd", command)
    _write(f"{base}.bc", bitcode)
    return Outcome(item, EXTRACTED)


def _write(path: str, content: memoryview) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        while content:
            content = content[os.write(file, content) :]
    finally:
        os.close(file)
