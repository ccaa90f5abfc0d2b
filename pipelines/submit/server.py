"""What a server that runs pipelines does, and how a run there is followed."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Protocol

from components.platform.console import say
from pipelines.submit.cron import CronSchedule
from pipelines.submit.options import SubmitOptions
from pipelines.submit.polling import PATIENCE_S, ServerRun, poll, report_canceled, report_run_continues


@dataclass(frozen=True)
class SubmittedRun:
    """A run that was started: its ID, and a line that names it."""

    run_id: str
    line: str


class PipelineServer(Protocol):
    """A server that runs pipelines, and with which credentials it is asked.

    Every method raises UserError if the server refuses, and polling.NoAnswer if a retry may help.
    """

    lacks: ClassVar[Mapping[str, tuple[str, str]]]
    """Option of a command that this kind of server does not have -> why, and what to do."""
    poll_s: float

    def submit(self, options: SubmitOptions) -> SubmittedRun:
        """Start a run.

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

    def run(self, run_id: str) -> ServerRun:
        """Return a run. NotFound if there is none."""

    def page(self, run_id: str) -> str:
        """Return the URL of a page where a run is shown."""

    def cancel(self, run_id: str) -> bool:
        """Ask the server to end a run; return whether a Ray cluster of it may remain. UserError if it has ended."""

    def retry(self, run_id: str) -> None:
        """Start the failed tasks of a run again, and those that depend on them. UserError unless it has failed."""


def wait(server: PipelineServer, run_id: str, poll_s: float | None = None, patience_s: float = PATIENCE_S) -> None:
    """Print each task's state as it changes until the run succeeds, and then its results.

    Raises:
        UserError: the run failed, or the server did not answer for `patience_s`.
        click.exceptions.Exit: the run was canceled (polling.EXIT_CANCELED), or following it was interrupted.
    """
    page = server.page(run_id)
    shown: dict[str, str] = {}
    with report_run_continues(run_id, page):
        run = poll(partial(server.run, run_id), run_id, page, patience_s)
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
        report_canceled(run_id, page)
    if run.state != "SUCCEEDED":
        raise run.failure()
    for line in run.results():
        say(line)
