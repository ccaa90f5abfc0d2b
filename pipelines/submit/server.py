"""What a server that runs pipelines does, and how a run there is followed."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import ClassVar, Literal, Protocol

import click

from components.platform.console import say, say_error
from components.platform.errors import UserError
from pipelines.submit.cron import CronSchedule
from pipelines.submit.options import SubmitOptions
from pipelines.submit.polling import (
    EXIT_CANCELED,
    PATIENCE_S,
    NoAnswer,
    NotFound,
    ServerRun,
    poll,
    report_run_continues,
)

_SEARCHED_RUNS = 500
"""The newest runs, among which the beginning of an ID is looked for."""
_NAMED = 10
"""Runs or schedules that an error lists."""


@dataclass(frozen=True)
class RunSummary:
    """A run in a list.

    Attributes:
        run_id: its ID, or its resource name on Vertex AI.
        state: as ServerRun.state.
        begun: when it was created; None if the server does not say it.
        seconds: from its creation to its end, or until now; None if that is unknown.
    """

    run_id: str
    name: str
    state: str
    begun: datetime | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class Schedule:
    """A schedule of runs.

    Attributes:
        schedule_id: its ID, or its resource name on Vertex AI.
        active: whether it starts runs.
        times: cron expression, or another description of when runs start.
    """

    schedule_id: str
    name: str
    active: bool
    times: str


ScheduleChange = Literal["pause", "resume", "delete"]


class PipelineServer(Protocol):
    """A server that runs pipelines, and with which credentials it is asked.

    Every method raises UserError if the server refuses, and polling.NoAnswer if a retry may help.
    """

    lacks: ClassVar[Mapping[str, tuple[str, str]]]
    """Option of a command that this kind of server does not have -> why, and what to do."""
    poll_s: float
    limits_only: bool
    """Whether resources of a step are limits, without requests."""

    def submit(self, options: SubmitOptions) -> tuple[str, str]:
        """Start a run; return its ID, and a line that names it.

        Raises:
            UserError: a parameter, a root or another option is invalid, an image was not pushed, or the server or the
                pipeline does not have what the overrides ask for.
        """

    def schedule(self, options: SubmitOptions, cron: CronSchedule, max_concurrency: int) -> str:
        """Start runs at the times of a schedule; return a line that names it.

        Runs that were missed, while it was disabled for example, do not start.

        Args:
            max_concurrency: how many of its runs may run at the same time.
        """

    def upload(self, options: SubmitOptions, version: str, repository: str) -> str:
        """Store a pipeline as a new version, named by its options or by itself; return a line that names it.

        Args:
            repository: where Vertex AI stores it.
        """

    def runs(self, experiment: str = "") -> Iterator[RunSummary]:
        """Yield the runs, newest first; on KFP, those that are not archived.

        Args:
            experiment: name of the experiment, which KFP's runs have; empty for all.
        """

    def schedules(self) -> list[Schedule]:
        """Return the schedules, newest first."""

    def change_schedule(self, schedule_id: str, change: ScheduleChange) -> None:
        """Pause, resume or delete a schedule. Its runs continue."""

    def run(self, run_id: str) -> ServerRun:
        """Return a run. NotFound if there is none."""

    def page(self, run_id: str) -> str:
        """Return the URL of a page where a run is shown."""

    def cancel(self, run_id: str) -> bool:
        """Ask the server to end a run; return whether a Ray cluster of it may remain. UserError if it has ended."""

    def retry(self, run_id: str) -> None:
        """Start the failed tasks of a run again, and those that depend on them. UserError unless it has failed."""


def seconds_since(begun: datetime | None, ended: datetime | None) -> float | None:
    """Return the seconds from a time of a server to another, or until now; None if the first is unknown."""
    if begun is None:
        return None
    return max(0.0, ((ended or datetime.now(begun.tzinfo)) - begun).total_seconds())


def find_run(server: PipelineServer, text: str) -> ServerRun:
    """Return the run whose ID is `text` or begins with it, or whose name it is.

    Raises:
        NotFound: there is none among the newest runs, or more than one.
    """
    try:
        return server.run(text)
    except NotFound as missing:
        try:
            newest = list(itertools.islice(server.runs(), _SEARCHED_RUNS))
        except NoAnswer:
            raise
        except UserError:  # this user may see runs, but not list them
            raise missing from None
        names = {run.run_id: run.name for run in newest}
        return server.run(_identify(text, names, "run", missing.problem))


def find_schedule(server: PipelineServer, text: str) -> Schedule:
    """Return the schedule whose ID is `text` or begins with it, or whose name it is. NotFound unless there is one."""
    schedules = {schedule.schedule_id: schedule for schedule in server.schedules()}
    names = {key: schedule.name for key, schedule in schedules.items()}
    return schedules[_identify(text, names, "schedule", f"there is no schedule {text!r}")]


def _identify(text: str, names: Mapping[str, str], kind: str, missing: str) -> str:
    """Return the ID that `text` is, begins or names. NotFound unless there is one.

    Args:
        names: name by ID.
        kind: "run" or "schedule".
        missing: the problem if there is none.
    """
    if text in names:
        return text
    found = [key for key, name in names.items() if key.rpartition("/")[2].startswith(text) or name == text]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{key} ({names[key]})" for key in (found or list(names))[:_NAMED])
    if found:
        raise NotFound(f"{text!r} is ambiguous: {len(found)} {kind}s have such an ID or name", f"pass one of {listed}")
    raise NotFound(missing, f"the newest {kind}s are {listed}" if names else f"there are no {kind}s")


def wait(server: PipelineServer, run_id: str, poll_s: float | None = None, patience_s: float = PATIENCE_S) -> None:
    """Print each task's state as it changes until the run succeeds, and then its results.

    Raises:
        UserError: the run failed, or the server did not answer for `patience_s`.
        click.exceptions.Exit: the run was canceled (polling.EXIT_CANCELED), or following it was interrupted.
    """
    page = server.page(run_id)
    with report_run_continues(run_id, page):
        run = poll(partial(find_run, server, run_id), run_id, page, patience_s)
    run_id, page = run.run_id, server.page(run.run_id)
    shown: dict[str, str] = {}
    with report_run_continues(run_id, page):
        while True:
            tasks = poll(lambda: run.tasks, run_id, page, patience_s)  # which may ask for a stored pipeline
            lines = {task.name: f"[{task.name}] {task.describe()}" for task in tasks if task.state}
            lines |= {remark: remark for remark in run.remarks()}
            for key, line in lines.items():
                if shown.get(key) != line:
                    say(line)
            shown |= lines
            if run.settled:
                break
            time.sleep(server.poll_s if poll_s is None else poll_s)
            poll(run.refresh, run_id, page, patience_s)
    if run.state == "CANCELED":
        say_error(f"error: the run {run_id} was canceled\n  remedy: see it at {page}, and submit it again")
        raise click.exceptions.Exit(EXIT_CANCELED)
    if run.state != "SUCCEEDED":
        raise run.failure()
    for line in run.results():
        say(line)
