"""Compiles units by stock clang and by the release clang, in random order, until the time is over."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import read_object
from components.core.compiler.logs.inline_remarks import count_departures, remark_flags
from components.core.compiler.objects.elf import STT_FUNC, Elf, ElfError
from components.core.projects.compiler_command import lacking_options
from components.forecast.units import Unit
from components.platform.console import Progress
from components.platform.errors import UserError
from components.platform.processes import supervision
from components.platform.workers.local_pool import LocalPool

TIMEOUT_S = 300.0
_MAX_ATTEMPTS = 4
_STB_LOCAL = 0


@dataclass(frozen=True)
class ObjectSizes:
    """Sizes of an object.

    Attributes:
        text: bytes of text as llvm-size counts it.
        machine_code: bytes of instructions.
        unwind: bytes of unwind and exception tables.
        discardable: bytes of the functions, with their tables, that disappear once all their calls are inlined: local
            ones, and those that every object that uses them defines.
        functions: number of functions.
    """

    path: Path
    text: int
    machine_code: int
    unwind: int
    discardable: int
    functions: int


@dataclass(frozen=True)
class MeasuredUnit:
    """A unit that both clangs compiled.

    Attributes:
        stock: by stock clang. policy: by the release clang without its outliner. release: by the release clang.
        decisions: number of the policy's decisions.
        departures: those in which LLVM's heuristic decides otherwise.
    """

    unit: Unit
    stock: ObjectSizes
    policy: ObjectSizes
    release: ObjectSizes
    decisions: int
    departures: int


@dataclass(frozen=True)
class Clangs:
    """Stock clang, and a release clang of the same version.

    Attributes:
        no_outliner: flags that leave only the policy of what the release clang does; () if it has no outliner.
    """

    stock: Path
    release: Path
    no_outliner: tuple[str, ...]


def measure_units(
    units: Sequence[Unit], clangs: Clangs, seconds: float, jobs: int, seed: int, scratch: Path
) -> tuple[dict[int, MeasuredUnit], dict[str, str], float]:
    """Compile units in random order until the time is over; those that have begun are finished.

    Args:
        seconds: time after which no compile begins.

    Returns:
        The measured units by their number, in their given order, which decides which of two definitions a linker keeps;
        what is wrong with those that do not compile, by name; and the wall seconds.

    Raises:
        UserError: none compiles.
    """
    order = np.random.default_rng(seed).permutation(len(units)).tolist()
    started_s = time.monotonic()
    measured: dict[int, MeasuredUnit] = {}
    failed: dict[str, str] = {}

    def in_time() -> Iterator[tuple[Unit, Path]]:
        for number in order:
            if time.monotonic() >= started_s + seconds and (measured or failed):
                return
            yield units[number], scratch / str(number)

    def measure(item: tuple[Unit, Path]) -> MeasuredUnit:
        return _measure(*item, clangs)

    with closing(LocalPool(jobs)) as pool, Progress("compiling by stock and release clang", len(units)) as progress:
        for index, result in pool.map_unordered(measure, in_time()):
            name = units[order[index]].name
            if isinstance(result, MeasuredUnit):
                measured[order[index]] = result
            elif isinstance(result, _CompileFailure):
                failed[name] = str(result)
            else:
                raise result
            progress.advance()
    if not measured:
        name, problem = next(iter(failed.items()))
        raise UserError(
            f"none of the {len(failed)} modules that were tried compiles, such as {name}: {problem}",
            "build the project first, so that its generated headers exist; or pass a corpus of it: --corpus",
        )
    return dict(sorted(measured.items())), failed, time.monotonic() - started_s


class _CompileFailure(Exception):
    """A unit does not compile; the message says why."""


def _measure(unit: Unit, scratch: Path, clangs: Clangs) -> MeasuredUnit:
    scratch.mkdir()
    record = scratch / "remarks.yaml"
    unit = _compile(unit, clangs.stock, [], scratch / "stock.o")
    flags = Advisor("release").flags("inlining", None, None)
    _compile(unit, clangs.release, [*flags, *clangs.no_outliner, *remark_flags(record)], scratch / "policy.o")
    decisions, departures = count_departures(record)
    record.unlink(missing_ok=True)
    if clangs.no_outliner:
        _compile(unit, clangs.release, flags, scratch / "release.o")
    try:
        stock, policy = _read_sizes(scratch / "stock.o"), _read_sizes(scratch / "policy.o")
        release = _read_sizes(scratch / "release.o") if clangs.no_outliner else policy
    except (ElfError, OSError) as error:
        problem = error.problem if isinstance(error, ElfError) else error
        raise _CompileFailure(f"its object cannot be read: {problem}") from None
    return MeasuredUnit(unit, stock, policy, release, decisions, departures)


def _compile(unit: Unit, clang: Path, flags: Sequence[str], output: Path) -> Unit:
    """Compile a unit and return it without the options that this clang does not have."""
    for _attempt in range(_MAX_ATTEMPTS):
        command = unit.command(clang, flags, output)
        try:
            done = supervision.run(command, TIMEOUT_S, cwd=unit.directory or output.parent, writable=output.parent)
        except supervision.ProcessTimeout:
            raise _CompileFailure(f"it takes more than {TIMEOUT_S:.0f} s") from None
        except OSError as error:
            raise _CompileFailure(f"{error.filename or output}: {error.strerror or error}") from None
        done.require_disk_space(output.parent)
        if done.returncode == 0:
            return unit
        lacking = lacking_options(done.stderr)
        if not lacking:
            break
        unit = unit.without(lacking)
    errors = [line for line in done.stderr.splitlines() if "error: " in line]
    raise _CompileFailure((errors or [done.reason])[0][:300])


def _read_sizes(path: Path) -> ObjectSizes:
    text, functions = read_object(path, want_functions=True)
    assert functions is not None
    whole = functions.whole
    local = _local_functions(path)
    is_kept = np.zeros(len(whole), bool)
    for name, weak, entry in zip(functions.names, functions.weak.tolist(), functions.entry.tolist(), strict=True):
        is_kept[entry] |= not weak and name not in local
    sections = functions.sections
    return ObjectSizes(
        path=path,
        text=text,
        machine_code=sections[".text"],
        unwind=sections[".eh_frame"] + sections[".gcc_except_table"],
        discardable=int(whole[~is_kept].sum()),
        functions=int((whole > 0).sum()),
    )


def _local_functions(path: Path) -> set[str]:
    elf = Elf(path.read_bytes())
    symbols = elf.symbols()
    rows = (symbols.type == STT_FUNC) & (symbols.binding == _STB_LOCAL)
    return set(elf.symbol_names(symbols.name[rows]))
