"""How figures are told, to all readers alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

SMALLER = ("smaller", "larger")
LANGUAGE_TITLES = {"c": "C modules", "c++": "C++ modules", "other": "modules of other languages"}


def change(reduction_percent: float | None, comparative: Sequence[str] = SMALLER) -> str:
    """`reduction_percent` in words that cannot be misread: "2.31% smaller", "0.40% larger", "same", or a dash."""
    if reduction_percent is None:
        return "–"
    if reduction_percent == 0:
        return "same"
    return f"{abs(reduction_percent):.2f}% {comparative[0] if reduction_percent > 0 else comparative[1]}"


def interval(bounds: Sequence[float] | None) -> str:
    """A 95% interval in percent, or a dash."""
    return f"{bounds[0]:+.2f}% … {bounds[1]:+.2f}%" if bounds else "–"


def policy_title(metrics: Mapping[str, Any]) -> str:
    """Names the policy and which clang compiled it: a figure of the training clang must not pass for the release's."""
    by = metrics.get("policy_compiled_by", "release")
    return f"policy, compiled by the {by} clang"
