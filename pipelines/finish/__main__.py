"""Exit handler of the pipeline: reports how it ended in the log, and to a webhook and as the status of a commit, if
these are configured.

Of a run on this machine, the runner tells the outcome, and CI, which waits for it, needs no status. Of a run on KFP,
this step asks KFP's API for the states of the tasks, in the pod, if someone is to be told.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence

import click
from msgspec import Struct

from components.evaluation.report.formatting import PROJECTS
from components.platform.command import run_step
from components.platform.console import say
from components.platform.console.number_types import environment_number
from components.platform.errors import UserError
from components.platform.launcher import commit_status
from components.platform.launcher.notify import NOTIFY_VARIABLE, OUTCOME_VARIABLE, PAGES_VARIABLE, notify
from components.platform.launcher.step_cost import is_cost_line
from components.platform.storage.input_files import parse_json, typed
from pipelines.submit.kfp_client import KfpClient, server_of_pod
from pipelines.submit.kfp_run import LOST_DRIVER, KfpRun, lost_driver
from pipelines.submit.polling import Task

_PATIENCE_S = environment_number("MLGO_FINISH_PATIENCE_S", 60)
"""How long to wait for the end of the other tasks, which KFP stores some seconds after it."""
_POLL_S = 5.0
_THIS = "finish"
"""Name of this task in the pipelines."""
_MAX_MESSAGE = 500
_VERDICT = re.compile(r"verdict(?P<subject> on .*?)?: (?P<verdict>.*?) \(measured: (?P<measured>.*); required: .*\)")
"""The line of a report; see terminal_report.footer_lines."""


class Outcome(Struct):
    """How a pipeline ended.

    Attributes:
        state: UNKNOWN where KFP cannot be asked.
        headline: the verdict and what gained and grew; "" if it is not known.
    """

    state: commit_status.State
    pipeline: str = ""
    failed: str = ""
    error: str = ""
    headline: str = ""


@click.command()
@click.option("--run-id", default="", metavar="ID", help="ID of the run on KFP.")
def main(run_id: str) -> None:
    """Report how a pipeline ended, in the log, to the webhook in $MLGO_NOTIFY_URL and as status of $MLGO_COMMIT.

    \b
    Example:
      MLGO_NOTIFY_URL=https://hooks.example.com/x python -m pipelines.finish --run-id 2f0a8b1e-5d1c-4d52-9a34
    """
    told = os.environ.get(OUTCOME_VARIABLE)
    if told:
        remedy = f"leave ${OUTCOME_VARIABLE} to mlgo pipeline run"
        outcome = typed(parse_json(told, OUTCOME_VARIABLE, remedy), Outcome, OUTCOME_VARIABLE, "an outcome", remedy)
    elif not os.environ.get(NOTIFY_VARIABLE, "").strip() and not commit_status.is_wanted():
        notify({})  # fails where a Secret should have the URL
        say("the pipeline has ended; no webhook is configured")
        return
    else:
        outcome = _asked(run_id)
    what = ": ".join(filter(None, (outcome.failed, outcome.error)))
    say(f"the pipeline ended: {outcome.state}" + (f": {what}" if what else ""))
    pages = os.environ.get(PAGES_VARIABLE, "")
    page = f"{pages}{run_id}" if pages and run_id else ""
    failures = []
    try:
        notify(
            {
                "run": run_id,
                "pipeline": outcome.pipeline,
                "state": outcome.state,
                "failed": outcome.failed,
                "error": outcome.error,
                "page": page,
            }
        )
    except UserError as error:
        failures.append(error)
    if commit_status.is_wanted() and not told:
        try:
            say(commit_status.set_commit_status(outcome.state, _describe(outcome), page))
        except UserError as error:
            failures.append(error)
    if failures:
        raise UserError("\n  and ".join(one.problem for one in failures), "; ".join(one.remedy for one in failures))


def _describe(outcome: Outcome) -> str:
    """Return how the pipeline ended, for the status of a commit."""
    if outcome.state == "SUCCEEDED":
        return outcome.headline or "the run succeeded"
    if outcome.state == "CANCELED":
        return "the run was canceled"
    failed = f"{outcome.failed} failed" if outcome.failed else ""
    return ": ".join(filter(None, (failed, outcome.error.removeprefix("error: ")))) or "the run failed"


def _asked(run_id: str) -> Outcome:
    """Return the outcome that KFP's API tells; UNKNOWN with the reason if it cannot be asked."""
    try:
        return _outcome(KfpRun(KfpClient(server_of_pod()), run_id))
    except UserError as error:
        return Outcome("UNKNOWN", error=f"KFP's API does not tell: {error.problem}")


def _outcome(run: KfpRun) -> Outcome:
    """Return how the run ends, of which this step is the last: by the states of its other tasks."""
    deadline_s = time.monotonic() + _PATIENCE_S
    # Until KFP has stored that this task runs, others may have ended since, such as the driver of a condition.
    while time.monotonic() <= deadline_s and any(
        task.state == "RUNNING" if task.name != _THIS else not task.state for task in run.tasks
    ):
        time.sleep(_POLL_S)
        run.refresh()
    others = [task for task in run.tasks if task.name != _THIS]
    pipeline = str((run.spec.get("pipelineInfo") or {}).get("name", ""))
    if run.state == "CANCELING":
        return Outcome("CANCELED", pipeline)
    if not any(task.state for task in others):
        return Outcome("UNKNOWN", pipeline, error="KFP's API lists no task of the run")
    failed = [task for task in others if task.state == "FAILED"]
    if not failed:
        headline = _headline(run.results()) if commit_status.is_wanted() else ""
        return Outcome("SUCCEEDED", pipeline, headline=headline)
    names = ", ".join(task.name for task in failed)
    return Outcome("FAILED", pipeline, names, _message(run, failed[0]))


def _headline(results: Sequence[str]) -> str:
    """Return the verdict, what was measured, and which projects grew and gained; "" if the results have no verdict."""
    verdict = next(filter(None, map(_VERDICT.match, results)), None)
    if verdict is None:
        return ""
    projects = next((line for line in results if line.startswith(PROJECTS)), "").removeprefix(PROJECTS)
    subject = f"{verdict['subject'].strip()}: " if verdict["subject"] else ""
    return "; ".join(filter(None, (f"{subject}{verdict['verdict']}: {verdict['measured']}", projects)))


def _message(run: KfpRun, task: Task) -> str:
    """Return the error at the end of a task's log, or the end of its last line; "" if there is none to be read.

    The line of a driver that failed is long, and ends with the reason.
    """
    lines = [line for line in run.read_log(task) if not is_cost_line(line)]
    if any(map(lost_driver, lines)):
        return "; ".join(LOST_DRIVER)
    errors = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    return "\n".join(lines[errors[-1] :])[:_MAX_MESSAGE] if errors else "".join(lines[-1:])[-_MAX_MESSAGE:]


if __name__ == "__main__":
    run_step(main)
