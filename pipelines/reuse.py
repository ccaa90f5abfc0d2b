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

from pipelines.places import local_directory, whole_digest
from pipelines.step import Places, Step


@dataclass(frozen=True)
class Finished:
    """What is known of a step that has run. seconds: wall time of the run that made the artifact."""

    key: str
    digest: str
    seconds: float


@dataclass(frozen=True)
class Records:
    """The records of one run directory `run`, whose artifacts are in `places`."""

    run: Path
    places: Places

    def key(self, step: Step, identity: str) -> str:
        """sha256 (hex) over everything that decides the step's result: command, input artifacts, code, facts.

        The inputs must be finished: their digests are read from their manifests. Artifacts enter by content, never
        by path, so that a run that was moved is still reused. identity: of the code, or of the image that it is in.
        """
        return self._key(step, identity, step.arguments)

    def reusable(self, step: Step, key: str) -> Finished | None:
        """The record of the step's earlier run if its artifact is whole and was made from `key`; else None."""
        document = self._read(step.name)
        try:
            record = Finished(str(document["key"]), str(document["digest"]), float(str(document["seconds"])))
            if record.key != key:
                return None
        except (KeyError, ValueError):
            return None  # never finished
        # Damaged or replaced since: the step runs again.
        whole = whole_digest(self.places.artifact(step.output)) == record.digest if step.output else True
        told = all(Path(self.places.file(step.name, name)).is_file() for name in step.parameters)
        return record if whole and told else None

    def finished(self, step: Step, key: str, seconds: float) -> None:
        """Records that the step's artifact, just made, belongs to `key`."""
        made = whole_digest(self.places.artifact(step.output)) if step.output else ""
        command = step.argv(self.places)
        self._write(step.name, {"key": key, "digest": made, "seconds": round(seconds, 3), "command": command})

    def prepare_work(self, step: Step, identity: str) -> str:
        """Makes a working directory that fits the step's inputs; returns what to tell the user, "" for nothing.

        A directory begun with the same inputs is kept, and the step goes on in it. One that was begun with others
        is moved aside, not deleted: it may hold hours of training.
        """
        work = local_directory(self.places.artifact(step.work))
        key = self._key(step, identity, step.start_arguments())
        if work is None:  # in object storage nothing can be moved aside; the step compares its inputs itself
            self._write(f"{step.name}.start", {"key": key})
            return ""
        begun = self._read(f"{step.name}.start").get("key")
        message = ""
        if work.exists() and any(work.iterdir()):
            if begun == key:
                return f"goes on in {work}"
            number = 1
            while (aside := work.with_name(f"{work.name}.old-{number}")).exists():
                number += 1
            os.rename(work, aside)
            message = f"its inputs changed, so it starts anew; earlier work is kept in {aside}"
        work.mkdir(parents=True, exist_ok=True)
        self._write(f"{step.name}.start", {"key": key})
        return message

    def _key(self, step: Step, identity: str, arguments: tuple[str, ...]) -> str:
        inputs = {key: whole_digest(self.places.artifact(name)) for key, name in sorted(step.inputs.items())}
        document = [step.module, arguments, inputs, step.facts, identity]
        return hashlib.sha256(json.dumps(document).encode()).hexdigest()

    def _read(self, name: str) -> dict[str, object]:
        try:
            document = json.loads((self.run / ".steps" / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return document if isinstance(document, dict) else {}

    def _write(self, name: str, document: dict[str, object]) -> None:
        path = self.run / ".steps" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        os.replace(fresh, path)
