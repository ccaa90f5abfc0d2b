"""Follow a run on a server. Failed requests are retried; the run continues even if following it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import click

from components.platform.console import say, say_error
from components.platform.console.interrupts import interrupted_status
from components.platform.console.number_types import environment_number
from components.platform.errors import UserError
from components.platform.storage.downloads.retry import GaveUp, retry

PATIENCE_S = environment_number("MLGO_POLL_PATIENCE_S", 300)
TIMEOUT_S = 60.0
EXIT_CANCELED = 3
"""Exit status of a command whose run was canceled. 1 is a run that failed, and 2 wrong usage."""

RUN_ENDED = {"SUCCEEDED", "FAILED", "SKIPPED", "CANCELED"}
TRAINING = "ppo"
"""Name of the task that trains, and of the working directory that it writes."""

T = TypeVar("T")


class NoAnswer(UserError):
    """The server was unreachable or could not answer; the same request may succeed later."""


class NotFound(UserError):
    """The server has no such route or object."""


@dataclass(frozen=True)
class Task:
    """A container task of a run.

    Attributes:
        name: as in the PipelineSpec.
        state: such as RUNNING; empty if the task has not begun.
        seconds: from its start to its end; None if it has not ended, or that is unknown.
        attempts: number of pods that were started for it; 0 if there was none, or that is unknown.
        reused: the server reused the result of another run.
        pods: possible names of its newest pod, the likeliest first; that of its driver if it has not begun. Empty if
            there was none, or that is unknown.
        may_wait: its pod, or that of a task that runs at the same time, is pending.
    """

    name: str
    state: str = ""
    seconds: float | None = None
    attempts: int = 0
    reused: bool = False
    pods: tuple[str, ...] = ()
    may_wait: bool = False

    def describe(self) -> str:
        """Return the state for a line of text."""
        if self.reused:
            return "reused the result of another run"
        attempts = f"attempt {self.attempts}" if self.attempts > 1 else ""
        took = f"after {describe_duration(self.seconds)}" if self.seconds is not None else ""
        return ", ".join(filter(None, (f"{self.state.lower()} {took}".strip(), attempts)))


class ServerRun(Protocol):
    """A run, as the server last answered.

    Attributes:
        run_id: its ID, or its resource name on Vertex AI.
    """

    run_id: str

    @property
    def outputs(self) -> Mapping[str, Mapping[str, Mapping[str, Any]]] | None:
        """Return the first artifact of each output of each task that has one, by the names of task and output.

        None if the API has no artifacts.
        """

    @property
    def state(self) -> str:
        """Return the state, one of RUN_ENDED if the run has ended."""

    @property
    def tasks(self) -> list[Task]:
        """Return the container tasks."""

    @property
    def settled(self) -> bool:
        """Return whether the run has ended and the server knows how its tasks did."""

    def refresh(self) -> None:
        """Ask the server again."""

    def read_log(self, task: Task) -> list[str]:
        """Return the lines of the log of a task's newest pod; [] if there is none. UserError if the API has no logs."""

    def remarks(self) -> list[str]:
        """Return what there is to say about a running run besides the states of its tasks, in lines of text."""

    def failure(self) -> UserError:
        """Return the error of a run that failed."""

    def results(self) -> list[str]:
        """Return what a run that succeeded has found, in lines of text."""


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
        result = retry(ask, lambda error: isinstance(error, NoAnswer), patience_s, report_first)
    except NotFound:
        raise
    except (GaveUp, UserError) as error:
        lost = error.cause if isinstance(error, GaveUp) else error
        problem, remedy = (lost.problem, f"; {lost.remedy}") if isinstance(lost, UserError) else (str(lost), "")
        raise UserError(f"{problem}; the run {run} itself continues", f"see it at {where}{remedy}") from None
    if failures:
        say("the server answers again")
    return result


@contextmanager
def report_run_continues(run: str, where: str) -> Iterator[None]:
    """On Ctrl-C (or SIGTERM), leave the block and say that the run itself continues."""
    try:
        yield
    except KeyboardInterrupt as error:
        say_error(f"interrupted; the run {run} itself continues\n  remedy: see or end it at {where}")
        raise click.exceptions.Exit(interrupted_status(error)) from None


def describe_state(state: str) -> str:
    """Return the state of a run as a sentence about it."""
    ended = {"SUCCEEDED": "it succeeded", "FAILED": "it failed", "CANCELED": "it was canceled"}
    return ended.get(state, f"it is {state.lower() or 'not started'}")


def describe_curve(folder: str) -> str:
    """Return the command that shows the training's curve, in a line of text."""
    return f"training curve: tensorboard --logdir {folder}"


def describe_duration(seconds: float) -> str:
    """Return a time in a unit that suits it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
