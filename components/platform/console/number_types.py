"""Types of numeric options: finite numbers within the limits of the machine and the libraries."""

from __future__ import annotations

import math
import os
from typing import Any

import click

from components.platform.errors import UserError


def finite_float(text: str | float) -> float:
    """Return `text` as a finite number. ValueError for NaN, infinity and text that is not a number."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a finite number")
    return value


class FiniteFloat(click.ParamType):
    """Floating-point option that refuses NaN and infinity, which pass click's comparisons with a bound."""

    name = "float"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        try:
            return finite_float(value)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a finite number.", parameter, context)


class FiniteFloatRange(click.FloatRange):
    """click.FloatRange that refuses NaN and infinity."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        return float(super().convert(FINITE_FLOAT.convert(value, parameter, context), parameter, context))


FINITE_FLOAT = FiniteFloat()
FRACTION = FiniteFloatRange(0, 1)
SAMPLING_RATE = FiniteFloatRange(0, 1, min_open=True)
FRACTION_BELOW_1 = FiniteFloatRange(0, 1, max_open=True)
TIMEOUT_S = FiniteFloatRange(min=0, min_open=True, max=7 * 86400)
"""Type of --timeout-s: poll(2) counts milliseconds in 32 bits, so it cannot wait for more than 24 days."""
MINUTES = FiniteFloatRange(min=0, max=366 * 24 * 60)
"""Type of --minutes: at most a year, which every library accepts in seconds."""
POSITIVE_MINUTES = FiniteFloatRange(min=0, min_open=True, max=MINUTES.max)
"""Minutes of a run's training or search, which cannot be left out by 0."""
REDUCTION_PERCENT = FiniteFloatRange(max=100)
"""Type of --min-reduction-percent: nothing shrinks by more than all of it."""
JOBS = click.IntRange(min=1, max=4096)
"""Number of concurrent threads or processes: each costs memory, so an absurd number would exhaust the machine."""
COUNT = click.IntRange(min=1, max=2**31 - 1)
"""A count within the integer range of NumPy and TensorFlow."""


class Repeats(click.IntRange):
    """Runs of a program for its time: 0 for none, or enough for a 95% interval of their median (0.5 ** 5 < 0.05)."""

    MIN = 6

    def __init__(self) -> None:
        super().__init__(0, 10_000)

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> int:
        repeats = int(super().convert(value, parameter, context))
        if 0 < repeats < self.MIN:
            self.fail(f"{repeats} runs have no 95% interval: give 0 or at least {self.MIN}.", parameter, context)
        return repeats


REPEATS = Repeats()
SEED = click.IntRange(0, 2**31 - 1)
"""Type of --seed: NumPy refuses negative seeds, and PPO shifts the seed by 32 bits for the 64-bit seeds of compiles."""
LLVM_MAJOR = click.IntRange(min=1, max=999)


def environment_number(name: str, default: float) -> float:
    """Return the number in the environment variable `name`, or `default` if it is not set.

    Raises:
        UserError: the value is not a number with 0 < number <= 1e6.
    """
    text = os.environ.get(name, "")
    try:
        value = finite_float(text) if text else default
        if not 0 < value <= 1e6:
            raise ValueError
    except ValueError:
        problem = f"{name}={text!r} is not a number greater than 0 and at most 1000000"
        raise UserError(problem, f"for example {name}={default:g}") from None
    return value
