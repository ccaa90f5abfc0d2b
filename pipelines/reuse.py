"""When a finished step need not run again, and when an interrupted one may go on.

Beside the artifacts of a run stands `.steps/<name>.json`:
    {"key": what the artifact was made from, "digest": of the artifact, "seconds": that it took, "command": [...]}
and, for a step that resumes, `.steps/<name>.start.json` {"key": what its working directory was begun with}.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from components.console import UserError
from components.storage import digest, require_artifact
from pipelines.source import source_digest
from pipelines.step import Step

STATE = ".steps"


@dataclass(frozen=True)
class Finished:
    """What is known of a step that has run. seconds: wall time of the run that made the artifact."""

    key: str
    digest: str
    seconds: float


def step_key(step: Step, run: Path, arguments: tuple[str, ...] | None = None) -> str:
    """sha256 (hex) over everything that decides the step's result: command, input artifacts, code, facts.

    The inputs must be finished: their digests are read from their manifests. Directories enter by content, never
    by path, so that a run that was moved is still reused.
    """
    inputs = {name: digest(run / name) for name in sorted(step.inputs)}
    document = [step.module, step.arguments if arguments is None else arguments, inputs, step.facts]
    return hashlib.sha256(json.dumps([document, source_digest(step.module)]).encode()).hexdigest()


def reusable(step: Step, run: Path, key: str) -> Finished | None:
    """The record of the step's earlier run if its artifact is whole and was made from the same key; else None."""
    record = _read(run, step.name)
    if record is None or record.key != key:
        return None
    try:
        require_artifact(run / step.output, step.name)
        return record if digest(run / step.output) == record.digest else None
    except UserError:
        return None


def record_finished(step: Step, run: Path, key: str, seconds: float) -> None:
    """Records that the step's artifact, just made, belongs to `key`."""
    made = digest(run / step.output)
    _write(run, step.name, {"key": key, "digest": made, "seconds": round(seconds, 3), "command": step.argv(run)})


def prepare_work(step: Step, run: Path) -> str:
    """Makes the working directory of a resuming step fit its inputs; returns what to tell the user ("" for nothing).

    A directory begun with the same inputs is kept, and the step goes on in it. One that was begun with others is
    moved aside, not deleted: it may hold hours of training.
    """
    work = run / step.work
    key = step_key(step, run, step.start_arguments())
    begun = _read_document(run, f"{step.name}.start").get("key")
    message = ""
    if work.exists() and any(work.iterdir()):
        if begun == key:
            return f"goes on in {work}"
        number = 1
        while (aside := work.with_name(f"{work.name}.old-{number}")).exists():
            number += 1
        os.rename(work, aside)
        message = f"its inputs changed: starts anew, earlier work is kept in {aside}"
    work.mkdir(parents=True, exist_ok=True)
    _write(run, f"{step.name}.start", {"key": key})
    return message


def _read(run: Path, name: str) -> Finished | None:
    document = _read_document(run, name)
    try:
        return Finished(str(document["key"]), str(document["digest"]), float(str(document["seconds"])))
    except (KeyError, ValueError):
        return None


def _read_document(run: Path, name: str) -> dict[str, object]:
    try:
        document = json.loads((run / STATE / f"{name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # never finished, or cut short by a power failure: the step runs again
    return document if isinstance(document, dict) else {}


def _write(run: Path, name: str, document: dict[str, object]) -> None:
    path = run / STATE / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    os.replace(fresh, path)
