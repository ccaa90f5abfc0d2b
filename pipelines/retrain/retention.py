"""Removes the artifacts of old runs on a server that promoted nothing: of refused policies, and of runs that failed.

    ROOT/.../mlgo-training/RUN_ID/TASK/UUID/ARTIFACT      on KFP
    ROOT/PROJECT_NUMBER/RUN_ID/TASK/ARTIFACT              on Vertex AI

The folder of a run goes if each of its objects is older than the limit, and

- a state of retraining says that its policy was not promoted, or
- it is of the training pipeline on KFP, and has artifacts, but no result: the run failed, or was canceled, before its
  policy. With an artifact root, KFP's own folder of a run has pages only, and so tells nothing.

It stays if it has something that the deployed policy or its history names: also an artifact of a run that failed, if a
later run reused it and was promoted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

from components.platform.errors import UserError
from components.platform.launcher.kfp_locations import UUID
from components.platform.storage import MANIFEST
from components.platform.storage.object_storage.stores import server_time, store_of
from components.platform.storage.object_storage.sweep import SweptObjects, remove_objects
from components.platform.storage.uri import ObjectUri
from pipelines.retrain.state import Deployed, State, load_state

MIN_DAYS = 30
"""Minimum age of a run's newest object. A run writes nothing for longer only if a step's attempts are at their deadline
(`ALL_ATTEMPTS` in pipelines/tasks.py)."""
_PIPELINE = "mlgo-training"
_VERTEX_JOB = re.compile(r"projects/[^/]+/locations/[^/]+/pipelineJobs/(?P<id>[^/]+)")
_RESULTS = {"policy", "evaluation", "release", "release_report", "promotion", "refusal"}
"""Artifacts of a run that others may name, or that decide on its policy."""


def sweep_runs(
    place: ObjectUri, states: Sequence[str], older_than_days: int, dry_run: bool = False
) -> Iterator[SweptObjects]:
    """Remove the artifacts of old runs below `place` that promoted nothing, and yield each run.

    Args:
        states: locations of the states of retraining that name refused policies.

    Raises:
        UserError: object storage refuses or does not answer, or a state cannot be read.
    """
    assert older_than_days >= MIN_DAYS
    before = server_time(place) - timedelta(days=older_than_days)  # read first: later changes only look younger
    # Objects are listed before the states are read, so that what is promoted meanwhile stays.
    present = store_of(place).objects(place)
    loaded = [load_state(location) for location in states]
    for location, state in zip(states, loaded, strict=True):
        if state.read.content is None:
            raise UserError(f"there is no state of retraining at {location}", "correct --state")
    promoted, refused = _runs_of(loaded)
    named = {*states, *(uri for entry in _entries(loaded) for uri in (entry.policy, entry.evaluation))}
    runs: dict[str, SweptObjects] = {}
    in_use: set[str] = set()
    for stored in present:
        path = _run_folder(stored.name, refused)
        if path is None or (place.path and not f"{path}/".startswith(f"{place.path}/")):
            continue  # of no run, or of one of which only a part is listed
        runs.setdefault(path, SweptObjects(replace(place, path=path))).add(stored)
        if stored.updated is None or stored.updated >= before:
            in_use.add(path)
    for path, run in runs.items():
        run_id = path.rpartition("/")[2]
        if path in in_use or run_id in promoted or not (run_id in refused or _failed(run)):
            continue
        run.what = f"run {'whose policy was not promoted' if run_id in refused else 'that ended without a policy'}"
        if any(uri.startswith(f"{run.uri}/") for uri in named):
            continue
        if not dry_run:
            remove_objects(run)
        yield run


def _failed(run: SweptObjects) -> bool:
    artifacts = {name.split("/")[-2] for name in run.versions if name.endswith(f"/{MANIFEST}")}
    return bool(artifacts) and not artifacts & _RESULTS


def _run_folder(name: str, refused: set[str]) -> str | None:
    """Return the folder of the run that an object belongs to; None if it belongs to none that may be removed."""
    parts = name.split("/")
    for number, part in enumerate(parts[:-1]):
        ours = number > 0 and parts[number - 1] == _PIPELINE and re.fullmatch(UUID, part)
        if ours or part in refused:
            return "/".join(parts[: number + 1])
    return None


def _runs_of(states: Sequence[State]) -> tuple[set[str], set[str]]:
    """Return the IDs of runs on a server that were promoted, and of those that were not and never before."""
    decisions = [decision for state in states for decision in state.decisions]
    judged = {_run_id(decision.run) for decision in decisions if decision.kind == "not promoted"}
    promoted = {_run_id(decision.run) for decision in decisions if decision.kind != "not promoted"}
    promoted |= {_run_id(entry.run) for entry in _entries(states)}
    return promoted, judged - promoted - {""}


def _entries(states: Sequence[State]) -> Iterator[Deployed]:
    for state in states:
        yield from filter(None, (state.deployed, *state.history))


def _run_id(run: str) -> str:
    """Return the name of a run's folder, "" if it ran on no server: the place that is its name may contain more."""
    if job := _VERTEX_JOB.fullmatch(run):
        return job["id"]
    return run if re.fullmatch(UUID, run) else ""
