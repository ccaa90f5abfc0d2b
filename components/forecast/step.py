"""Makes a forecast: compiles units, links what was compiled, and says what to do."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
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
from components.forecast.measure import Clangs, MeasuredUnit, ObjectSizes, measure_units
from components.forecast.types import SMALLEST_SAMPLE, Change, Forecast, LinkedForecast, ObjectsForecast
from components.forecast.units import Unit
from components.platform.errors import UserError

_COMPILERS: tuple[Compiler, ...] = ("stock", "policy", "release")
_SPLITS = 4
"""Random splits of the compiled units into halves."""
_95_PERCENT = 2.78
"""Quantile of Student's t for a variance from as many splits."""


def forecast(
    units: Sequence[Unit], release: Toolchain, stock_clang: Path | None, seconds: float, jobs: int, seed: int
) -> Forecast:
    """Return the forecast for a program that consists of `units`.

    Args:
        stock_clang: None for the installed one.
        seconds: time after which no compile begins.
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
        linked, not_linked = None, ""
        try:
            linker = Linker(find_lld(release.clang), scratch)
            linked = _forecast_linked(measured, len(units), linker, seed)
        except LinkFailure as error:
            not_linked = str(error)
        except UserError as error:
            not_linked = error.problem
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    text = sum(one.stock.text for one in measured)
    result = Forecast(
        modules=len(units),
        failed=failed,
        seed=seed,
        compile_s=compile_s,
        functions=sum(one.stock.functions for one in measured),
        discardable_percent=_percent(sum(one.stock.discardable for one in measured), text),
        unwind_percent=_percent(sum(one.stock.unwind for one in measured), text),
        decisions=sum(one.decisions for one in measured),
        departures=sum(one.departures for one in measured),
        objects=_sum_objects(measured),
        languages={
            language: _sum_objects(of_language)
            for language in LANGUAGES
            if (of_language := [one for one in measured if one.unit.language == language])
        },
        linked=linked,
        not_linked=not_linked,
    )
    result.advice = advise(result)
    return result


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _sum_objects(measured: Sequence[MeasuredUnit]) -> ObjectsForecast:
    def change(column: str) -> Change:
        def total(sizes: Iterable[ObjectSizes]) -> int:
            return sum(getattr(one, column) for one in sizes)

        return Change(
            stock=total(one.stock for one in measured),
            policy=total(one.policy for one in measured),
            release=total(one.release for one in measured),
        )

    return ObjectsForecast(
        modules=len(measured), text=change("text"), machine_code=change("machine_code"), unwind=change("unwind")
    )


def _forecast_linked(measured: Sequence[MeasuredUnit], units: int, linker: Linker, seed: int) -> LinkedForecast:
    """Link what was compiled, a sample of a program of `units` units.

    The spread between the halves of random splits gives the interval. Extrapolating from the halves to the whole
    program, because a larger program drops more copies of inline functions, was further off than the sample itself.
    """
    stock, policy, release = (linker.sizes(measured, by) for by in _COMPILERS)
    n = len(measured)
    margin = 0.0 if n == units else None
    if SMALLEST_SAMPLE <= n < units:
        random = np.random.default_rng(seed)
        halves = np.array([_split_in_halves(measured, linker, random) for _ in range(_SPLITS)])
        variance = float(((halves[:, 0] - halves[:, 1]) ** 2).mean()) / 4 * (1 - n / units)
        margin = _95_PERCENT * math.sqrt(variance)

    def change(size: Callable[[SectionSizes], int]) -> Change:
        return Change(stock=size(stock), policy=size(policy), release=size(release))

    return LinkedForecast(
        bytes=change(lambda sizes: sizes.total),
        machine_code=change(lambda sizes: sizes.text),
        unwind=change(lambda sizes: sizes.eh_frame + sizes.gcc_except_table),
        names=change(lambda sizes: sizes.dynstr),
        margin=margin,
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
