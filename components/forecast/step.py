"""Makes a forecast: compiles units, links what was compiled, and says what to do."""

from __future__ import annotations

import itertools
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from components.core.compiler.probe import without_outliner
from components.core.compiler.source_language import LANGUAGES
from components.core.formats.toolchain import Toolchain
from components.core.projects.flags.build_variants import build_variants, find_stock_clang
from components.core.projects.flags.types import SectionSizes
from components.core.projects.link_recorder.recorder import find_lld
from components.forecast.advice import advise
from components.forecast.linked import Compiler, Linker, LinkFailure
from components.forecast.linked_files import BuildFiles, LinkedFile
from components.forecast.measure import Clangs, MeasuredUnit, measure_units
from components.forecast.types import SMALLEST_SAMPLE, Change, FileForecast, Forecast, LinkedForecast, ObjectsForecast
from components.forecast.units import Unit
from components.platform.console import Progress
from components.platform.errors import UserError
from components.platform.workers.local_pool import LocalPool

_COMPILERS: tuple[Compiler, ...] = ("stock", "policy", "release")
_SPLITS = 4
"""Random splits of the compiled units into halves."""
_SMALLEST_SHARE = 0.5
"""Of the compiled units in known files of the build: of fewer, links of the build are probably not known."""
_95_PERCENT = 2.78
"""Quantile of Student's t for a variance from as many splits."""


def forecast(
    units: Sequence[Unit],
    links: BuildFiles,
    release: Toolchain,
    stock_clang: Path | None,
    seconds: float,
    jobs: int,
    seed: int,
) -> Forecast:
    """Return the forecast for programs that consist of `units`.

    Args:
        links: the programs and shared libraries of the units; empty if they are unknown.
        stock_clang: None for the installed one.
        seconds: time after which no compile begins, and after as much again no link of a file of the build.
        seed: of the order in which units are compiled.

    Raises:
        UserError: the release clang has no policy for inlining, there is no stock clang of its version, or no unit
            compiles.
    """
    stock, policy = build_variants(find_stock_clang(release, stock_clang), release, "inlining")
    scratch = Path(tempfile.mkdtemp(prefix="mlgo-forecast-"))
    try:
        clangs = Clangs(stock.clang, policy.clang, without_outliner(policy.clang))
        measured, failed, compile_s = measure_units(units, clangs, seconds, jobs, seed, scratch)
        linked, files, not_linked = None, list[FileForecast](), ""
        try:
            linker = Linker(find_lld(release.clang), scratch)
            sizes, not_linked = _link_files(links.files, measured, linker, seconds, jobs, seed)
            linked, files = _forecast_linked(measured, len(units), sizes, linker, seed)
        except LinkFailure as error:
            not_linked = str(error)
        except UserError as error:
            not_linked = error.problem
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    compiled = list(measured.values())
    text = sum(one.stock.text for one in compiled)
    in_files = set[int]().union(*(file.units for file in links.files)) if files else set(measured)
    result = Forecast(
        modules=len(units),
        failed=failed,
        seed=seed,
        compile_s=compile_s,
        functions=sum(one.stock.functions for one in compiled),
        discardable_percent=_percent(sum(one.stock.discardable for one in compiled), text),
        unwind_percent=_percent(sum(one.stock.unwind for one in compiled), text),
        decisions=sum(one.decisions for one in compiled),
        departures=sum(one.departures for one in compiled),
        objects=_sum_objects(compiled),
        languages={
            language: _sum_objects(of_language)
            for language in LANGUAGES
            if (of_language := [one for one in compiled if one.unit.language == language])
        },
        linked=linked,
        not_linked=not_linked,
        links=links.source if files else "none",
        unlinked=len(measured.keys() - in_files),
        files=files,
    )
    result.advice = advise(result)
    return result


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _sum_objects(measured: Sequence[MeasuredUnit]) -> ObjectsForecast:
    def change(column: str) -> Change:
        stock, policy, release = (sum(getattr(getattr(one, by), column) for one in measured) for by in _COMPILERS)
        return Change(stock=stock, policy=policy, release=release)

    return ObjectsForecast(
        modules=len(measured), text=change("text"), machine_code=change("machine_code"), unwind=change("unwind")
    )


def _forecast_linked(
    measured: Mapping[int, MeasuredUnit],
    units: int,
    sizes: Mapping[LinkedFile, Sequence[SectionSizes]],
    linker: Linker,
    seed: int,
) -> tuple[LinkedForecast, list[FileForecast]]:
    """Forecast the linked files from what was compiled, of `units` units: from the files of the build, which have
    `sizes`, or from a link of all together if these have few of them.

    The spread between the halves of random splits gives the interval. Extrapolating from the halves to the whole
    program, because a larger program drops more copies of inline functions, was further off than the sample itself.

    Returns:
        The sum, and the files of the build that are in it.
    """
    files = [_file_forecast(file, measured, by) for file, by in sizes.items()]
    linked = set[int]().union(*(file.units for file in sizes)).intersection(measured)
    if len(linked) >= _SMALLEST_SHARE * len(measured):
        totals = [sum(column, SectionSizes()) for column in zip(*sizes.values(), strict=True)]
    else:
        files = []
        totals = [linker.sizes(list(measured.values()), by) for by in _COMPILERS]
    n = len(measured)
    margin = 0.0 if n == units else None
    if SMALLEST_SAMPLE <= n < units:
        random = np.random.default_rng(seed)
        compiled = list(measured.values())
        halves = np.array([_split_in_halves(compiled, linker, random) for _ in range(_SPLITS)])
        variance = float(((halves[:, 0] - halves[:, 1]) ** 2).mean()) / 4 * (1 - n / units)
        margin = _95_PERCENT * math.sqrt(variance)

    def change(size: Callable[[SectionSizes], int]) -> Change:
        stock, policy, release = map(size, totals)
        return Change(stock=stock, policy=policy, release=release)

    result = LinkedForecast(
        bytes=change(lambda sizes: sizes.total),
        machine_code=change(lambda sizes: sizes.text),
        unwind=change(lambda sizes: sizes.eh_frame + sizes.gcc_except_table),
        names=change(lambda sizes: sizes.dynstr),
        margin=margin,
    )
    return result, sorted(files, key=lambda file: (-file.bytes.stock, file.name))


def _link_files(
    files: Sequence[LinkedFile],
    measured: Mapping[int, MeasuredUnit],
    linker: Linker,
    seconds: float,
    jobs: int,
    seed: int,
) -> tuple[dict[LinkedFile, list[SectionSizes]], str]:
    """Link files of the build by each of the compilers, in random order until the time is over.

    Returns:
        The sizes of each file that was linked, and what is wrong with the others; "" if nothing is.
    """
    possible = [file for file in files if not file.units.isdisjoint(measured)]
    if not possible:
        return {}, ""
    order = [possible[number] for number in np.random.default_rng(seed).permutation(len(possible))]
    started_s = time.monotonic()
    sizes: dict[LinkedFile, list[SectionSizes]] = {}
    failed: list[str] = []

    def link(file: LinkedFile) -> list[SectionSizes]:
        return [linker.file_sizes(file, measured, by) for by in _COMPILERS]

    in_time = itertools.takewhile(lambda _file: time.monotonic() < started_s + seconds, order)
    with closing(LocalPool(jobs)) as pool, Progress("linking the files of the build", len(order)) as progress:
        for index, result in pool.map_unordered(link, in_time):
            if isinstance(result, (LinkFailure, UserError)):
                problem = result.problem if isinstance(result, UserError) else result
                failed.append(f"{order[index].name}: {problem}")
            elif isinstance(result, Exception):
                raise result
            else:
                sizes[order[index]] = result
            progress.advance()
    problems = [f"{len(failed)} of {len(files)} files of the build, such as {failed[0]}"] if failed else []
    if late := len(possible) - len(sizes) - len(failed):
        problems.append(f"{late} of {len(files)} files of the build: the time was over")
    return sizes, "; ".join(problems)


def _file_forecast(
    file: LinkedFile, measured: Mapping[int, MeasuredUnit], sizes: Sequence[SectionSizes]
) -> FileForecast:
    stock, policy, release = (size.total for size in sizes)
    return FileForecast(
        name=file.name,
        modules=len(file.units),
        compiled=len(file.units.intersection(measured)),
        bytes=Change(stock=stock, policy=policy, release=release),
    )


def _split_in_halves(
    measured: Sequence[MeasuredUnit], linker: Linker, random: np.random.Generator
) -> tuple[float, float]:
    """Return the change in percent of each half of a random split, linked by itself."""
    changes = []
    for half in np.array_split(random.permutation(len(measured)), 2):
        units = [measured[i] for i in half]
        stock, release = linker.sizes(units, "stock"), linker.sizes(units, "release")
        changes.append(Change(stock=stock.total, release=release.total).percent)
    return changes[0], changes[1]
