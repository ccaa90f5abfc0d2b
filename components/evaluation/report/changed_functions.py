"""Formats functions that changed, and the decisions behind them, for all reports. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath

from components.core.compiler.objects.function_names import shorten
from components.evaluation.metrics_types import FunctionChange, FunctionDecision, Inputs

_MAX_PATH = 36
_MIN_NAME = 24


def decision_lines(change: FunctionChange, width: int) -> list[str]:
    """Return a line for each decision behind the change, with names of functions cut to fit `width` characters."""
    lines = [_describe(change, decision, width) for decision in change.decisions]
    count = change.more_decisions
    more = f"{count} {'more ' if lines else ''}decision{'s' if count > 1 else ''} unlike LLVM's"
    if count:
        lines.append(f"and {more}" if lines else f"none of the measured decisions alone; {more}")
    return lines


def by_direction(changes: Sequence[FunctionChange]) -> list[tuple[str, list[FunctionChange]]]:
    """Return the changes that made functions larger and those that made them smaller, each with the end of its title,
    without a direction that has none."""
    grown = [change for change in changes if change.new > change.old]
    shrunk = [change for change in changes if change.new <= change.old]
    titled = (("that grew most", grown), ("that shrank most, or are gone", shrunk))
    return [(title, chosen) for title, chosen in titled if chosen]


def shorten_path(path: str) -> str:
    """Return a path of a module or binary, of its end if it is long."""
    return path if len(path) <= _MAX_PATH else f"…{path[1 - _MAX_PATH :]}"


def explain_commands(changes: Sequence[FunctionChange], inputs: Inputs) -> list[str]:
    if not (inputs.training_clang and inputs.corpus and inputs.policy):
        return []
    toolchain = PurePosixPath(inputs.training_clang).parents[1]
    modules = dict.fromkeys(change.binary for change in changes)
    return [
        f"mlgo policy explain {module} --policy {inputs.policy} --corpus {inputs.corpus} --toolchain {toolchain}"
        for module in modules
    ]


def _describe(change: FunctionChange, decision: FunctionDecision, width: int) -> str:
    verb = "inlined" if decision.inlines else "not inlined"
    effect = ""
    if decision.saved_bytes is not None and decision.function_bytes is not None:
        otherwise = f"{decision.function_bytes:,} bytes" if decision.function_bytes else "gone"
        effect = f"; otherwise {otherwise}, module {decision.saved_bytes:+,}"
    if decision.callee != change.function:
        return f"{_fit(decision.callee, width, f' {verb} here{effect}')} {verb} here{effect}"
    if decision.calls > 1:
        return f"{verb} in {decision.calls} calls{effect}"
    return f"{verb} into {_fit(decision.caller, width, f'{verb} into {effect}')}{effect}"


def _fit(name: str, width: int, rest: str) -> str:
    return shorten(name, max(width - len(rest), _MIN_NAME))
