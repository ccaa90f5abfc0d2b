"""`mlgo pipeline list | logs | artifacts | schedules`: the runs on a server, what they wrote, and their schedules."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import click

from components.platform.console import say
from components.platform.errors import UserError
from pipelines.cli.server_options import option, takes_server
from pipelines.cli.submit import pipeline_group
from pipelines.submit.artifacts.published import published_artifacts
from pipelines.submit.polling import describe_duration
from pipelines.submit.server import PipelineServer, ScheduleChange, find_run, find_schedule

_STATES = ("pending", "running", "succeeded", "failed", "canceling", "canceled")
_SCHEDULE = click.argument("schedule")


@pipeline_group.command("list", short_help="List the runs on a server.")
@takes_server
@click.option(
    "--limit", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="Show at most N runs."
)
@click.option("--state", type=click.Choice(_STATES), help="Show only runs in this state.")
@option("--experiment", metavar="NAME", help="KFP: show only runs of this experiment.")
def list_command(server: PipelineServer, limit: int, state: str | None, experiment: str) -> None:
    """List the runs on a server, newest first: ID, name, state, begin (local time) and duration.

    \b
    Examples:
      mlgo pipeline list --host http://localhost:8080
      mlgo pipeline list --host http://localhost:8080 --state failed --limit 5
    """
    runs = (run for run in server.runs(experiment) if state in (None, run.state.lower()))
    rows = [
        (
            run.run_id,
            run.name,
            run.state.lower() or "unknown",
            run.begun.astimezone().strftime("%Y-%m-%d %H:%M") if run.begun else "",
            "" if run.seconds is None else describe_duration(run.seconds),
        )
        for run in itertools.islice(runs, limit)
    ]
    say_table(("RUN", "NAME", "STATE", "BEGUN", "DURATION"), rows, "no runs")


@pipeline_group.command("logs", short_help="Print the log of a step of a run on KFP.")
@click.argument("run")
@click.argument("task")
@takes_server
def logs_command(server: PipelineServer, run: str, task: str) -> None:
    """Print the log of a step that runs or has ended. RUN is a run's ID, the beginning of it, or its name; TASK is the
    step's name, as `mlgo pipeline watch` prints it.

    The lines of KFP's own launcher are left out. If a step was repeated, the log is that of its last attempt.

    \b
    Example:
      mlgo pipeline logs 2f0a8b1e ppo --host http://localhost:8080
    """
    found = find_run(server, run)
    begun = {one.name: one for one in found.tasks if one.state}
    if task not in begun:
        known = task in [one.name for one in found.tasks]
        problem = f"the step {task} has not begun" if known else f"there is no step {task!r}"
        raise UserError(
            f"{problem} in the run {found.run_id}", f"steps with a log: {', '.join(begun)}" if begun else "wait"
        )
    if begun[task].reused:
        raise UserError(
            f"the step {task} reused the result of another run, so it has no log in the run {found.run_id}",
            "see the earlier run: mlgo pipeline list",
        )
    lines = found.read_log(begun[task])
    if not lines:
        pods = begun[task].pods
        command = f" or kubectl logs --container main {pods[0]}" if pods else ""
        raise UserError(
            f"the server has no log of the step {task}: it wrote nothing yet, its pod and archived log are gone, or "
            "the server may not read those of running pods, which KFP's web page may",
            f"see {server.page(found.run_id)}{command}, or pass --host with the URL of the web page",
        )
    for line in lines:
        say(line)


@pipeline_group.command("artifacts", short_help="List or download what the steps of a run published.")
@click.argument("run")
@click.argument("name", required=False, default="")
@takes_server
@click.option(
    "--download",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Download the artifacts, or those of NAME, to DIR/TASK/NAME.",
)
@option(
    "--pipeline-root",
    metavar="URI",
    help="KFP: another root than the run's: the server's, where artifacts of a run without a root are, and pages of a "
    "run with --artifact-root.",
)
def artifacts_command(server: PipelineServer, run: str, name: str, directory: Path | None, pipeline_root: str) -> None:
    """List what the steps of a run have published, with type and URI, or download it. RUN is a run's ID, the beginning
    of it, or its name; NAME is that of an artifact, or TASK/NAME.

    A downloaded artifact appears in its place when it is complete and its checksums are right. Artifacts in a
    cluster's own storage (minio://) are read at $AWS_ENDPOINT_URL_S3.

    \b
    Examples:
      mlgo pipeline artifacts 2f0a8b1e --host http://localhost:8080
      mlgo pipeline artifacts 2f0a8b1e release --download . --host http://localhost:8080
    """
    found = find_run(server, run)
    published = published_artifacts(found, pipeline_root)
    chosen = [one for one in published if name in ("", one.name, f"{one.task}/{one.name}")]
    reused = [task.name for task in found.tasks if task.reused]
    elsewhere = f"reused from other runs, and in their folders: {', '.join(reused)}" if reused else ""
    if not chosen and (name or directory):
        names = ", ".join(f"{one.task}/{one.name}" for one in published)
        what = f"no artifact {name!r}" if name else "no artifact"
        remedy = f"it has {names}" if names else "mlgo pipeline watch shows which steps have ended"
        raise UserError(f"the run {found.run_id} has published {what}", f"{remedy}; {elsewhere}".removesuffix("; "))
    if directory:
        for one in chosen:
            say(f"downloaded: {one.download(directory)}")
    else:
        rows = [(one.task, one.name, one.kind, one.uri) for one in chosen]
        say_table(("TASK", "NAME", "TYPE", "URI"), rows, "no artifacts")
    if elsewhere and not name:
        say(elsewhere)


@pipeline_group.group("schedules", short_help="List, pause, resume or delete schedules.")
def schedules_group() -> None:
    """List, pause, resume or delete the schedules that `mlgo pipeline schedule` made. SCHEDULE is a schedule's ID, the
    beginning of it, or its name.

    \b
    Examples:
      mlgo pipeline schedules list --host http://localhost:8080
      mlgo pipeline schedules pause weekly --host http://localhost:8080
    """


@schedules_group.command("list")
@takes_server
def list_schedules_command(server: PipelineServer) -> None:
    """List the schedules on a server, newest first: ID, name, state and times.

    \b
    Example:
      mlgo pipeline schedules list --host http://localhost:8080
    """
    rows = [(one.schedule_id, one.name, "active" if one.active else "paused", one.times) for one in server.schedules()]
    say_table(("SCHEDULE", "NAME", "STATE", "TIMES"), rows, "no schedules")


@schedules_group.command("pause")
@_SCHEDULE
@takes_server
def pause_command(server: PipelineServer, schedule: str) -> None:
    """Start no runs of a schedule until it is resumed. Runs that have begun continue.

    \b
    Example:
      mlgo pipeline schedules pause weekly --host http://localhost:8080
    """
    say(f"paused: {_change(server, schedule, 'pause')}")


@schedules_group.command("resume")
@_SCHEDULE
@takes_server
def resume_command(server: PipelineServer, schedule: str) -> None:
    """Start runs of a paused schedule again. Those that it missed do not start.

    \b
    Example:
      mlgo pipeline schedules resume weekly --host http://localhost:8080
    """
    say(f"resumed: {_change(server, schedule, 'resume')}")


@schedules_group.command("delete")
@_SCHEDULE
@takes_server
def delete_command(server: PipelineServer, schedule: str) -> None:
    """Delete a schedule. Its runs and their artifacts stay.

    \b
    Example:
      mlgo pipeline schedules delete weekly --host http://localhost:8080
    """
    say(f"deleted: {_change(server, schedule, 'delete')}")


def _change(server: PipelineServer, text: str, change: ScheduleChange) -> str:
    """Change the schedule that `text` identifies; return its ID and name, and its times if runs will start."""
    found = find_schedule(server, text)
    server.change_schedule(found.schedule_id, change)
    return f"{found.schedule_id} ({found.name})" + (f", {found.times}" if change == "resume" else "")


def say_table(head: Sequence[str], rows: Sequence[Sequence[str]], nothing: str) -> None:
    """Print rows in aligned columns, or `nothing` if there are none."""
    if not rows:
        say(nothing)
        return
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, *rows):
        say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
