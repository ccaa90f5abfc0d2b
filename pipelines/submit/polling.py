"""Poll a run on a server. Failed requests are retried; the run continues even if polling ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, TypeVar

import click

from components.platform.console import say, say_error
from components.platform.console.interrupts import interrupted_status
from components.platform.console.number_types import environment_number
from components.platform.errors import UserError
from components.platform.storage.downloads.retry import GaveUp, retry

PATIENCE_S = environment_number("MLGO_POLL_PATIENCE_S", 300)
"""How long requests may keep failing."""
TIMEOUT_S = 60.0
"""Timeout of one request."""
EXIT_CANCELED = 3
"""Exit status of a command whose run was canceled. 1 is a run that failed, and 2 wrong usage."""

RUN_ENDED = {"SUCCEEDED", "FAILED", "SKIPPED", "CANCELED", "CANCELLED"}
"""States of runs that have ended: KFP's, and Vertex AI's without the prefix PIPELINE_STATE_."""

TRAINING = "ppo"
"""Name of the task that trains, and of the working directory that it writes."""

T = TypeVar("T")


class NoAnswer(UserError):
    """The server was unreachable or could not answer; the same request may succeed later."""


class NotFound(UserError):
    """The server has no such route or object."""


def poll(ask: Callable[[], T], run: str, where: str, patience_s: float = PATIENCE_S) -> T:
    """Return what `ask` returns; retry with growing pauses while it raises NoAnswer.

    Args:
        run: name of the run, for messages.
        where: URL of the run, for messages.

    Raises:
        UserError: no answer for `patience_s`, or the server refuses; the message says that the run continues.
        NotFound: there is no such run.
    """
    failures = 0

    def report_first(count: int, error: Exception) -> None:
        nonlocal failures
        failures = count
        if count == 1:
            say(f"{error.problem if isinstance(error, UserError) else error}; retrying")

    try:
        answer = retry(ask, lambda error: isinstance(error, NoAnswer), patience_s, report_first)
    except NotFound:
        raise
    except (GaveUp, UserError) as error:
        lost = error.cause if isinstance(error, GaveUp) else error
        problem, remedy = (lost.problem, f"; {lost.remedy}") if isinstance(lost, UserError) else (str(lost), "")
        raise UserError(f"{problem}; the run {run} itself continues", f"see it at {where}{remedy}") from None
    if failures:
        say("the server answers again")
    return answer


@contextmanager
def report_run_continues(run: str, where: str) -> Iterator[None]:
    """On Ctrl-C (or SIGTERM), leave the block and say that the run itself continues."""
    try:
        yield
    except KeyboardInterrupt as error:
        say_error(f"interrupted; the run {run} itself continues\n  remedy: see or end it at {where}")
        raise click.exceptions.Exit(interrupted_status(error)) from None


def report_curve(place: str) -> None:
    """Print the command that shows the training's curve.

    Args:
        place: URI of a folder with event files.
    """
    say(f"training curve: tensorboard --logdir {place}")


def report_canceled(run: str, where: str) -> NoReturn:
    """Say that somebody canceled the run, and exit with EXIT_CANCELED."""
    say_error(f"error: the run {run} was canceled\n  remedy: see it at {where}, and submit it again")
    raise click.exceptions.Exit(EXIT_CANCELED)
