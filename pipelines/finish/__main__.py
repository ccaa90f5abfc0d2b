"""Exit handler of the pipeline: reports how it ended in the log, and to a webhook if one is configured.

Of a run on this machine, the runner tells the outcome. Of a run on KFP, this step asks KFP's API for the states of the
tasks, in the pod, if there is a webhook.
"""

from __future__ import annotations

import os
import time

import click
from msgspec import Struct

from components.platform.command import run_step
from components.platform.console import say
from components.platform.console.number_types import environment_number
from components.platform.errors import UserError
from components.platform.launcher.notify import NOTIFY_VARIABLE, OUTCOME_VARIABLE, PAGES_VARIABLE, notify
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


class Outcome(Struct):
    """How a pipeline ended. state: SUCCEEDED, FAILED or CANCELED; UNKNOWN where KFP cannot be asked."""

    state: str
    pipeline: str = ""
    failed: str = ""
    error: str = ""


@click.command()
@click.option("--run-id", default="", metavar="ID", help="ID of the run on KFP.")
def main(run_id: str) -> None:
    """Report how a pipeline ended, in the log and to the webhook in $MLGO_NOTIFY_URL.

    \b
    Example:
      MLGO_NOTIFY_URL=https://hooks.example.com/x python -m pipelines.finish --run-id 2f0a8b1e-5d1c-4d52-9a34
    """
    told = os.environ.get(OUTCOME_VARIABLE)
    if told:
        remedy = f"leave ${OUTCOME_VARIABLE} to mlgo pipeline run"
        outcome = typed(parse_json(told, OUTCOME_VARIABLE, remedy), Outcome, OUTCOME_VARIABLE, "an outcome", remedy)
    elif not os.environ.get(NOTIFY_VARIABLE, "").strip():
        notify({})  # fails where a Secret should have the URL
        say("the pipeline has ended; no webhook is configured")
        return
    else:
        try:
            outcome = _outcome(KfpRun(KfpClient(server_of_pod()), run_id))
        except UserError as error:
            outcome = Outcome("UNKNOWN", error=f"KFP's API does not tell: {error.problem}")
    what = ": ".join(filter(None, (outcome.failed, outcome.error)))
    say(f"the pipeline ended: {outcome.state}" + (f": {what}" if what else ""))
    pages = os.environ.get(PAGES_VARIABLE, "")
    notify(
        {
            "run": run_id,
            "pipeline": outcome.pipeline,
            "state": outcome.state,
            "failed": outcome.failed,
            "error": outcome.error,
            "page": f"{pages}{run_id}" if pages and run_id else "",
        }
    )


def _outcome(run: KfpRun) -> Outcome:
    """Return how the run ends, of which this step is the last: by the states of its other tasks."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while "RUNNING" in {task.state for task in run.tasks if task.name != _THIS} and time.monotonic() <= deadline_s:
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
        return Outcome("SUCCEEDED", pipeline)
    names = ", ".join(task.name for task in failed)
    return Outcome("FAILED", pipeline, names, _message(run, failed[0]))


def _message(run: KfpRun, task: Task) -> str:
    """Return the error at the end of a task's log, or the end of its last line; "" if there is none to be read.

    The line of a driver that failed is long, and ends with the reason.
    """
    lines = run.read_log(task)
    if any(map(lost_driver, lines)):
        return "; ".join(LOST_DRIVER)
    errors = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    return "\n".join(lines[errors[-1] :])[:_MAX_MESSAGE] if errors else "".join(lines[-1:])[-_MAX_MESSAGE:]


if __name__ == "__main__":
    run_step(main)
