"""`mlgo interactive`: runs a compile whose decisions this process makes, through LLVM's interactive mode."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from components.core import problems
from components.core.compiler.development_mode.interactive import (
    Columns,
    InteractiveDecision,
    answer,
    open_channel,
)
from components.core.compiler.logs.records import Record, format_record
from components.core.formats.policy import PRETRAINED_HELP, PRETRAINED_NAMES, require_policy
from components.core.policy.dense import DensePolicy, read_dense
from components.platform.command import run_step
from components.platform.console import say
from components.platform.console.interrupts import delay_interrupts
from components.platform.errors import UserError
from components.platform.storage.options import ArtifactOr

_DEFAULT = "heuristic"


class ForegroundCompile:
    """A compile with the input, output and errors of this process; see interactive.Compilation."""

    def __init__(self, command: Sequence[str]) -> None:
        try:
            self._process = subprocess.Popen(command)
        except OSError as error:
            raise UserError(f"{command[0]} cannot be run: {error.strerror}", "pass the path of a clang") from None

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        if self.is_running:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            self._process.kill()
        self._process.wait()

    def check(self) -> None:
        self._process.wait()

    @property
    def status(self) -> int:
        """The exit status; 128 and the number of the signal that ended it."""
        status = self._process.wait()
        return status if status >= 0 else 128 - status


class _Policy:
    """Decides by a policy, or as LLVM's heuristic, which two features tell.

    LLVM can add the heuristic's decision, too, but LLVM 19 writes it over another feature.
    """

    def __init__(self, policy: DensePolicy | None, problem: str) -> None:
        self._policy = policy
        self._interface = problems.get(problem).policy
        self._is_checked = False

    def __call__(self, _context: str, columns: Columns) -> int:
        if not self._is_checked:
            self._check(columns)
            self._is_checked = True
        if self._policy is not None:
            return int(self._policy.logits(columns).argmax())
        assert self._interface.heuristic is not None
        cost, threshold = (columns[name].ravel()[0] for name in self._interface.heuristic)
        return int(cost < threshold)

    def _check(self, columns: Columns) -> None:
        needed = self._interface.heuristic or () if self._policy is None else [f.name for f in self._policy.features]
        if missing := sorted({*needed} - {*columns}):
            raise UserError(
                f"the policy uses features that this compiler does not have: {', '.join(missing)}",
                "pass a policy of LLVM's features, such as --policy pretrained-llvm",
            )


def answer_compile(
    command: Sequence[str], problem: str, policy: DensePolicy | None, quiet: bool
) -> tuple[int, int, float]:
    """Run a compile and answer it; return its exit status, the number of decisions, and the seconds of deciding.

    Raises:
        UserError: the compiler lacks a feature of the policy, or is no clang with LLVM's interactive mode.
    """
    decide, seconds = _Policy(policy, problem), 0.0

    def timed(context: str, columns: Columns) -> int:
        nonlocal seconds
        started_s = time.perf_counter()
        action = decide(context, columns)
        seconds += time.perf_counter() - started_s
        return action

    count, last = 0, None
    numbers: dict[str, int] = {}
    with TemporaryDirectory(prefix="mlgo-channel-") as directory, open_channel(problem, directory) as channel:
        with delay_interrupts():
            compilation = ForegroundCompile([*command, *channel.flags])
        try:
            for decision in answer(compilation, channel, timed):
                number = numbers[decision.context] = numbers.get(decision.context, -1) + 1
                if not quiet:
                    sys.stdout.write(_format(decision, number, decision.context != last) + "\n")
                last, count = decision.context, count + 1
        finally:
            compilation.stop()
    return compilation.status, count, seconds


def _format(decision: InteractiveDecision, number: int, with_context: bool) -> str:
    values: dict[str, Any] = {spec.name: decision.columns[spec.name] for spec in decision.columns.features}
    record = Record(decision.context, number, values, None)
    return format_record(record, decision.columns.features, with_context) + f"\nadvice: {decision.action}"


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--policy",
    type=ArtifactOr(*PRETRAINED_NAMES, _DEFAULT),
    default=_DEFAULT,
    show_default=True,
    help=f"Policy that decides: one of yours, or a pretrained one ({PRETRAINED_HELP}). {_DEFAULT}: as LLVM's.",
)
@click.option("--problem", default="inlining", show_default=True, help="Problem whose decisions are asked for.")
@click.option("--quiet", is_flag=True, help="Do not print the decisions.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def main(policy: Path | str, problem: str, quiet: bool, command: tuple[str, ...]) -> int:
    """Run a compile, COMMAND, whose decisions this process makes through LLVM's interactive mode, and print them.

    Any clang of LLVM 17 or later has this mode; it needs no embedded policy. In this mode ours, too, computes LLVM's
    features only, so a policy for inlining must be of these. The exit status is the compile's.

    \b
    Examples:
      mlgo interactive -- clang-19 -Oz -c a.c
      mlgo interactive --policy pretrained-llvm -- clang-19 -Oz -c a.c
      mlgo interactive --policy runs/llvm/policy --quiet -- clang++-19 -Oz -c a.cpp
      mlgo interactive --problem regalloc --policy pretrained -- clang-19 -O2 -c a.c
    """
    from components.core.policy.pretrained import pretrained_policy

    problems.get(problem)
    dense = None
    if policy != _DEFAULT:
        directory = pretrained_policy(problem, name=policy) if isinstance(policy, str) else policy
        require_policy(directory)
        dense = read_dense(directory)
        if dense.problem != problem:
            raise UserError(f"{policy} is a policy for {dense.problem}", f"pass --problem {dense.problem}")
    elif problems.get(problem).policy.heuristic is None:
        raise UserError(f"no feature tells what LLVM's heuristic would do for {problem}", "pass --policy")
    status, count, seconds = answer_compile(command, problem, dense, quiet)
    if not count and not status:
        level = problems.get(problem).optimization
        say(f"{command[0]} asked for no decision: is it a clang of LLVM 17 or later, and the level {level}?")
    if count:
        say(f"{count} decisions, {1e3 * seconds / count:.2f} ms each")
    return status


if __name__ == "__main__":
    run_step(main)
