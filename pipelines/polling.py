"""Looks at a run on a server. A lost answer is asked for again, and whatever ends the looking, the run goes on."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import click

from components.console import UserError, say
from components.console.command import interrupted_status
from components.console.number_types import environment_number

PATIENCE_S = environment_number("MLGO_POLL_PATIENCE_S", 300)
"""How long answers may be lost one after the other."""
TIMEOUT_S = 60.0
"""For one answer."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 30.0

T = TypeVar("T")


class NoAnswer(UserError):
    """The server was not reached, or could not answer now: the same question may be answered later."""


def may_recover(status: int) -> bool:
    """Whether a request that was answered with this HTTP status may be answered otherwise later."""
    return status in (408, 429) or status >= 500


def look(ask: Callable[[], T], run: str, where: str, patience_s: float = PATIENCE_S) -> T:
    """What `ask` returns, asked again with growing pauses while it raises NoAnswer.

    Args:
        run: names the run for the user. where: to see it.

    Raises:
        UserError: no answer for `patience_s`, or the server refuses; says that the run goes on.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about versions of Python that Google will want years from now
        from google.api_core.exceptions import RetryError
        from google.api_core.retry import Retry, if_exception_type

    tried: list[Exception] = []

    def told(error: Exception) -> None:
        if not tried:
            say(f"{error.problem if isinstance(error, UserError) else error}; asking again")
        tried.append(error)

    again = Retry(if_exception_type(NoAnswer), _FIRST_WAIT_S, _LONGEST_WAIT_S, timeout=patience_s, on_error=told)
    try:
        answer = again(ask)()
    except (RetryError, UserError) as error:
        lost = error if isinstance(error, UserError) else tried[-1]
        problem = lost.problem if isinstance(lost, UserError) else str(lost)
        raise UserError(f"{problem}; the run {run} itself goes on", f"see it at {where}") from None
    if tried:
        say("answers come again")
    return answer


@contextmanager
def run_goes_on(run: str, where: str) -> Iterator[None]:
    """Ctrl-C (or SIGTERM) ends the block, and says that it does not end the run."""
    try:
        yield
    except KeyboardInterrupt as error:
        print(f"interrupted; the run {run} itself goes on\n  remedy: see it, or end it, at {where}", file=sys.stderr)
        raise click.exceptions.Exit(interrupted_status(error)) from None
