"""Runs on a KFP server: follow, cancel and retry them, without kfp."""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from components.platform.console import say
from components.platform.console.number_types import environment_number
from components.platform.errors import UserError
from components.platform.rayjob.pending_pods import pending_reason
from pipelines.smoke.rows import TABLE_HEADING, TABLE_STEP
from pipelines.spec import starts_ray_itself
from pipelines.submit.kfp_client import KfpServer
from pipelines.submit.kfp_rest import KfpRest, check_run_id, run_state
from pipelines.submit.kfp_tasks import Task, tasks_of
from pipelines.submit.polling import (
    RUN_ENDED,
    TRAINING,
    NotFound,
    poll,
    report_canceled,
    report_curve,
    report_run_continues,
)

POLL_S = environment_number("MLGO_POLL_S", 10)
_WAITS_POLLS = 6
"""Polls in which a pod may be pending before `follow` asks why, and after which it asks again."""
_LAST_LINES = 20
_LATE_REPORTS = 3
"""Polls after the end of a run for the states of its tasks, which KFP stores after that of the run."""


def follow(server: KfpServer, run_id: str, poll_s: float = POLL_S) -> None:
    """Print each task's state as it changes until the run succeeds.

    Raises:
        UserError: the run failed (with the last lines of a failed task's log), or the server did not answer for
            polling.PATIENCE_S.
        click.exceptions.Exit: the run was canceled (polling.EXIT_CANCELED), or following it was interrupted.
    """
    check_run_id(run_id)
    where = run_page(server, run_id)
    api = KfpRest(server)
    with report_run_continues(run_id, where):
        poll(api.require_usable, run_id, where)
        run = poll(partial(api.get_run, run_id), run_id, where)
        spec = poll(partial(api.pipeline_spec, run), run_id, where)
        printer = _Printer(api)
        late = _LATE_REPORTS
        canceling = False
        while True:
            tasks = tasks_of(run, spec)
            printer.show(tasks)
            if any(task.name == TRAINING and task.state for task in tasks):
                printer.show_curve(api.artifact_folder(run, spec))
            state = run_state(run)
            canceling = state == "CANCELING" or (canceling and state == "FAILED")
            if state in RUN_ENDED:
                late -= 1
                if not late or not _lags(state, tasks):
                    break
            time.sleep(poll_s)
            run = poll(partial(api.get_run, run_id), run_id, where)
    if state == "CANCELED" or canceling:
        report_canceled(run_id, where)
    if state != "SUCCEEDED":
        raise _failure(api, run, tasks, where)
    for line in _smoke_table(api, run, tasks):
        say(line)


def cancel(server: KfpServer, run_id: str) -> bool:
    """Ask the server to end a run; return whether a step of it may have started a Ray cluster.

    Raises:
        UserError: there is no such run, it has ended, or the server refuses.
    """
    check_run_id(run_id)
    api = KfpRest(server)
    api.require_usable()
    run = api.get_run(run_id)
    state = run_state(run)
    if state in RUN_ENDED:
        raise UserError(f"the run {run_id} has ended: it is {state.lower()}", f"see it at {run_page(server, run_id)}")
    may_start_ray = _may_start_ray(api, run)
    api.ask("POST", f"runs/{run_id}:terminate")
    return may_start_ray


def _may_start_ray(api: KfpRest, run: Mapping[str, Any]) -> bool:
    """Return whether a step may start a RayJob: as the parameter `workers` says, or without one, as the smoke test."""
    settings = run.get("runtime_config")
    given = settings.get("parameters") if isinstance(settings, Mapping) else None
    if isinstance(given, Mapping) and str(given.get("workers", "")).startswith("rayjob"):
        return True
    try:
        return starts_ray_itself(api.pipeline_spec(run))
    except NotFound:  # the stored version is deleted
        return True


def retry_run(server: KfpServer, run_id: str) -> None:
    """Ask the server to start the failed tasks of a run again, and those that depend on them.

    KFP keeps the run, its ID and the results of finished tasks. An exit handler that has run does not run again.

    Raises:
        UserError: there is no such run, it has not failed, or the server refuses.
    """
    check_run_id(run_id)
    api = KfpRest(server)
    api.require_usable()
    state = run_state(api.get_run(run_id))
    if state not in ("FAILED", "CANCELED"):
        ended = state in RUN_ENDED
        raise UserError(
            f"the run {run_id} has not failed: it is {state.lower() or 'not started'}",
            "submit a new run" if ended else f"wait until it has ended: mlgo pipeline watch {run_id}",
        )
    api.ask("POST", f"runs/{run_id}:retry")


def run_page(server: KfpServer, run_id: str) -> str:
    """Return the URL of the run's page."""
    return server.page(f"runs/details/{run_id}")


class _Printer:
    """Prints what has changed since the last look at a run."""

    def __init__(self, api: KfpRest) -> None:
        self._api = api
        self._shown: dict[str, str] = {}
        self._waits: dict[str, int] = {}
        self._reasons: dict[str, str] = {}
        self._curve_shown = False

    def show(self, tasks: list[Task]) -> None:
        """Print one line for each task whose state or attempt has changed, and why a pod does not start."""
        for task in tasks:
            if task.state and self._shown.get(task.name) != (line := _describe(task)):
                self._shown[task.name] = line
                say(f"[{task.name}] {line}")
            self._explain_wait(task)

    def show_curve(self, folder: str) -> None:
        """Print the command that shows the training's curve, if the step itself writes it to Cloud Storage.

        TensorBoard looks for event files below the folder of the step, one attempt of which has a UUID that no API
        tells.
        """
        if not self._curve_shown and folder.startswith("gs://"):
            report_curve(f"{folder}/{TRAINING}")
        self._curve_shown = True

    def _explain_wait(self, task: Task) -> None:
        self._waits[task.name] = self._waits.get(task.name, 0) + 1 if task.may_wait else 0
        if not self._waits[task.name] or self._waits[task.name] % _WAITS_POLLS:
            return
        reason = next(filter(None, (pending_reason(self._pod(pod)) for pod in task.pods)), "")
        if reason and self._reasons.get(task.name) != reason:
            self._reasons[task.name] = reason
            say(f"[{task.name}] its pod has not started: {reason}")
            if "Insufficient" in reason:
                say("  cancel the run and submit it with --small, if no larger node will come")

    def _pod(self, name: str) -> dict[str, Any]:
        """Return a pod through KFP's user interface, or from the kubeconfig's cluster; {} if neither has it."""
        if found := self._api.pod(name):
            return found
        from pipelines.cluster.kubernetes_checks import Cluster  # imports the client of Kubernetes

        try:
            return Cluster(self._api.pods_namespace).pod(name)
        except UserError:  # no kubeconfig
            return {}


def _describe(task: Task) -> str:
    if task.reused:
        return "reused the result of another run"
    attempts = f"attempt {task.attempts}" if task.attempts > 1 else ""
    took = f"after {_duration(task.seconds)}" if task.seconds is not None else ""
    return ", ".join(filter(None, (f"{task.state.lower()} {took}".strip(), attempts)))


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _lags(state: str, tasks: list[Task]) -> bool:
    """Return whether the tasks' states are older than the run's."""
    states = {task.state for task in tasks}
    return "RUNNING" in states or (state == "FAILED" and bool(states - {""}) and "FAILED" not in states)


def _smoke_table(api: KfpRest, run: Mapping[str, Any], tasks: list[Task]) -> list[str]:
    """Return the lines of the smoke test's table, at the end of a log; none of another pipeline, or if it has none."""
    for task in tasks:
        if task.name == TABLE_STEP and (lines := api.task_log(run, task.pods)):
            begins = [number for number, line in enumerate(lines) if line.startswith(TABLE_HEADING)]
            return lines[begins[-1] :] if begins else []
    return []


def _failure(api: KfpRest, run: Mapping[str, Any], tasks: list[Task], where: str) -> UserError:
    run_id, state = str(run.get("run_id")), run_state(run)
    failed = [task for task in tasks if task.state == "FAILED"]
    if not failed:
        return UserError(f"the run {run_id} did not succeed: it is {state.lower()}", f"see it at {where}")
    if not_run := [task.name for task in tasks if not task.state]:
        say(f"not run: {', '.join(not_run)}")
    lines = ""
    if tail := api.task_log(run, failed[0].pods)[-_LAST_LINES:]:
        lines = f"\n  the last lines of {failed[0].name}:" + "".join(f"\n    {line}" for line in tail)
    command = f"kubectl logs --container main {failed[0].pods[0]}, or " if failed[0].pods and not lines else ""
    return UserError(
        f"the run {run_id} did not succeed: step {', '.join(task.name for task in failed)} failed{lines}",
        f"see its log at {where}" + (f" ({command.removesuffix(', or ')})" if command else "") + ". When the cause is "
        f"removed, mlgo pipeline retry {run_id} continues the run from there",
    )
