"""Numbers that users pass: finite ones, within what the machine and the libraries can take."""

from __future__ import annotations

import math
import os
from typing import Any

import click

from components.console.errors import UserError


def finite_float(text: str | float) -> float:
    """Return `text` as a finite number. ValueError for NaN, infinity and what is no number."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a finite number")
    return value


class FiniteFloat(click.ParamType):
    """A floating-point option without NaN and infinity, both of which pass click's own comparisons with a bound."""

    name = "float"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        try:
            return finite_float(value)
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a finite number.", parameter, context)


class FiniteFloatRange(click.FloatRange):
    """click.FloatRange without NaN and infinity."""

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> float:
        return float(super().convert(FINITE_FLOAT.convert(value, parameter, context), parameter, context))


FINITE_FLOAT = FiniteFloat()
FRACTION = FiniteFloatRange(0, 1)
TIMEOUT_S = FiniteFloatRange(min=0, min_open=True, max=7 * 86400)
"""What --timeout-s takes: poll(2) counts milliseconds in 32 bits, so that it cannot wait for more than 24 days."""
MINUTES = FiniteFloatRange(min=0, max=366 * 24 * 60)
"""What --minutes takes: at most a year, whose seconds no library refuses."""
JOBS = click.IntRange(min=1, max=4096)
"""Threads or processes at a time: each costs memory at once, so that an absurd number would exhaust the machine."""
COUNT = click.IntRange(min=1, max=2**31 - 1)
"""How many of something, as NumPy and TensorFlow count."""
SEED = click.IntRange(0, 2**31 - 1)
"""What --seed takes: NumPy wants no negative one, and PPO makes 64-bit seeds of compiles of it, shifted by 32."""
LLVM_MAJOR = click.IntRange(min=1, max=999)
"""What --llvm-major takes."""


def environment_number(name: str, default: float) -> float:
    """Return the number in an environment variable, `default` without one. UserError unless 0 < number <= 1e6."""
    text = os.environ.get(name, "")
    try:
        value = finite_float(text) if text else default
        if not 0 < value <= 1e6:
            raise ValueError
    except ValueError:
        problem = f"{name}={text!r} is not a number above 0 and at most 1000000"
        raise UserError(problem, f"for example {name}={default:g}") from None
    return value
