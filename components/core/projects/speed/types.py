"""Types of comparisons of speed. Imports nothing heavy."""

from __future__ import annotations

from msgspec import Struct


class TimeChange(Struct, kw_only=True, frozen=True):
    """Processor times of programs, built with stock clang and with the release clang; negative changes are better.

    Attributes:
        stock_s, policy_s: medians in seconds.
        repeats: runs of each build.
        change_percent: change under the policy, from the medians of the ratios of runs next to each other.
        interval_percent: its 95% interval over runs.
    """

    stock_s: float
    policy_s: float
    repeats: int
    change_percent: float
    interval_percent: tuple[float, float]
