"""What the steps of a run used, and an overrides file with what they need.

On KFP the figures are in the logs of steps, because its API has no artifacts; on Vertex AI in the metadata of
artifacts; of a run on this machine in its logs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from components.platform.errors import UserError
from components.platform.launcher.step_cost import StepCost, cost_in_metadata, find_cost
from components.platform.storage.input_files import read_bytes
from pipelines.submit.polling import ServerRun, Task

_WITHOUT_LAUNCHER = "finish"
"""The exit handler, which nothing measures: it sends a few requests."""
_MIN_MILLICPUS, _MILLICPUS = 100, 100
_MIN_MEGABYTES, _MEGABYTES = 500, 100
"""Least request, and what requests are multiples of. KFP's launcher and Python need some memory in each step."""


@dataclass
class Profile:
    """What the steps of a run used.

    Attributes:
        costs: by task, of steps that have ended.
        failed: those of them that did not succeed, and may need more.
        unknown: by task, why nothing is known of others that have begun.
    """

    costs: dict[str, StepCost] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    unknown: dict[str, str] = field(default_factory=dict)


def profile_of(run: ServerRun) -> Profile:
    """Return what the steps of a run on a server used, in the order of tasks."""
    profile = Profile()
    for task in run.tasks:
        if not task.state or task.name == _WITHOUT_LAUNCHER:
            continue
        if task.state == "RUNNING":
            profile.unknown[task.name] = "it still runs"
        elif (cost := _cost(run, task)) is not None:
            profile.costs[task.name] = cost
            if task.state == "FAILED":
                profile.failed.add(task.name)
        elif task.reused:
            profile.unknown[task.name] = "it reused the result of another run"
        else:
            where = "its log is gone, or has" if run.outputs is None else "its artifacts have"
            profile.unknown[task.name] = f"{where} no figures"
    return profile


def profile_of_directory(run: Path) -> Profile:
    """Return what the steps of a run on this machine used, in the order of their ends. Reused ones as when they ran.

    Raises:
        UserError: `run` is not the directory of such a run.
    """
    if not (run / ".steps").is_dir():
        raise UserError(
            f"{run} is no directory of a run of `mlgo run` or `mlgo pipeline run`",
            "for a run on a server pass --host URL or --vertex PROJECT/REGION",
        )
    profile = Profile()
    for log in sorted((run / "logs").glob("*.log"), key=lambda path: path.stat().st_mtime_ns):
        task, record = log.stem, run / ".steps" / f"{log.stem}.json"
        cost = find_cost(read_bytes(log).decode("utf-8", "replace").splitlines())
        if cost is not None:
            profile.costs[task] = cost
            # The record of an earlier success is older.
            if not record.exists() or record.stat().st_mtime_ns < log.stat().st_mtime_ns:
                profile.failed.add(task)
        elif task != _WITHOUT_LAUNCHER:
            profile.unknown[task] = "its log has no figures"
    return profile


def overrides_text(profile: Profile, margin_percent: int, limits_only: bool) -> str:
    """Return an overrides file with the resources of the steps that succeeded.

    Memory is what a step used, and the margin. Processors are requested as used on average, with the margin; the limit
    stays, because the number of compiles at a time follows it, and memory follows them.

    Args:
        limits_only: for Vertex AI, which has no requests: the limit of processors is what would be requested.

    Raises:
        UserError: no step succeeded whose figures are known.
    """
    lines = []
    for task, cost in profile.costs.items():
        if task not in profile.failed:
            megabytes = _at_least(cost.peak_memory_bytes / 1e6, margin_percent, _MIN_MEGABYTES, _MEGABYTES)
            millicpus = _at_least(cost.processors_used * 1000, margin_percent, _MIN_MILLICPUS, _MILLICPUS)
            millicpus = min(millicpus, 1000 * cost.processors)
            cpu = f"request: {millicpus}m, limit: {cost.processors}"
            memory = f"request: {megabytes}M, limit: {megabytes}M"
            if limits_only:
                cpu, memory = f"limit: {math.ceil(millicpus / 1000)}", f"limit: {megabytes}M"
            lines += [f"{task}:", f"  cpu: {{{cpu}}}", f"  memory: {{{memory}}}"]
    if not lines:
        raise UserError("no step of the run has succeeded whose figures are known", "pass a run that has succeeded")
    return "\n".join([*lines, ""])


def _cost(run: ServerRun, task: Task) -> StepCost | None:
    if (outputs := run.outputs) is not None:
        found = (cost_in_metadata(artifact.get("metadata")) for artifact in outputs.get(task.name, {}).values())
        return next(filter(None, found), None)
    return None if task.reused else find_cost(run.read_log(task))


def _at_least(used: float, margin_percent: int, least: int, multiple: int) -> int:
    """Return what was used with a margin, rounded up to a multiple, and not less than `least`."""
    return max(least, multiple * math.ceil(used * (1 + margin_percent / 100) / multiple))
