"""Decide whether a finished step can be reused, and whether an interrupted one can resume.

The run directory has a record `.steps/<name>.json` of each step:
    {"key": digest of its inputs, "digest": of its artifact, "seconds": wall time, "command": [...]}
and, for a step that can resume, `.steps/<name>.start.json`: {"key": digest of the inputs of its working directory}.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from components.platform.storage.digests import json_digest
from components.platform.storage.output_files import replace_text
from pipelines.local.locations import artifact_digest, local_directory
from pipelines.local.step import RunLocations, Step


@dataclass(frozen=True)
class StepRecords:
    """The records of the run directory `run`, whose artifacts are in `locations`."""

    run: Path
    locations: RunLocations

    def key(self, step: Step, identity: str) -> str:
        """Return the sha256 (hex) over all that decides the step's result: command, artifacts, code, cache inputs.

        The inputs must be finished: their digests are read from their manifests. Artifacts enter by content, never
        by path, so that a run that was moved is still reused.

        Args:
            identity: digest of the code, or the image that has the code.
        """
        return self._key(step, identity, step.arguments)

    def reusable(self, step: Step, key: str) -> float | None:
        """Return the seconds of the step's earlier run if its artifact is intact and was made from `key`, else None."""
        document = self._read(step.name)
        try:
            made, seconds = str(document["digest"]), float(str(document["seconds"]))
        except (KeyError, ValueError):
            return None  # never finished
        if document.get("key") != key:
            return None
        # If the artifact was damaged or replaced since, the step runs again.
        location = self.locations.artifact(step.output) if step.output else ""
        intact = not location or artifact_digest(location, verify_content=True) == made
        has_parameters = all(Path(self.locations.file(step.name, name)).is_file() for name in step.parameters)
        return seconds if intact and has_parameters else None

    def is_as_made(self, step: Step) -> bool:
        """Return whether the step's artifact is the one that an earlier run made here; its content is not read."""
        made = self._read(step.name).get("digest")
        return bool(made) and artifact_digest(self.locations.artifact(step.output)) == made

    def finished(self, step: Step, key: str, seconds: float) -> None:
        """Record that the step's artifact, just made, belongs to `key`."""
        made = artifact_digest(self.locations.artifact(step.output)) if step.output else ""
        command = step.argv(self.locations)
        self._write(step.name, {"key": key, "digest": made, "seconds": round(seconds, 3), "command": command})

    def prepare_work(self, step: Step, identity: str) -> str:
        """Provide a working directory that fits the step's inputs; return a message for the user, or "".

        A directory that was started with the same inputs is kept, and the step resumes in it. One that was started with
        other inputs is moved aside, not deleted: it may hold hours of training.
        """
        work = local_directory(self.locations.artifact(step.work))
        key = self._key(step, identity, step.start_arguments())
        if work is None:  # object storage has no rename; the step itself compares its inputs
            self._write(f"{step.name}.start", {"key": key})
            return ""
        earlier = self._read(f"{step.name}.start").get("key")
        message = ""
        if work.exists() and any(work.iterdir()):
            if earlier == key:
                return f"resumes in {work}"
            number = 1
            while (aside := work.with_name(f"{work.name}.old-{number}")).exists():
                number += 1
            os.rename(work, aside)
            message = f"its inputs changed, so it starts from scratch; earlier work is kept in {aside}"
        work.mkdir(parents=True, exist_ok=True)
        self._write(f"{step.name}.start", {"key": key})
        return message

    def _key(self, step: Step, identity: str, arguments: tuple[str, ...]) -> str:
        inputs = {key: artifact_digest(self.locations.artifact(name)) for key, name in sorted(step.inputs.items())}
        return json_digest([step.module, arguments, inputs, step.cache_inputs, identity])

    def _read(self, name: str) -> dict[str, object]:
        try:
            document = json.loads((self.run / ".steps" / f"{name}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return document if isinstance(document, dict) else {}

    def _write(self, name: str, document: dict[str, object]) -> None:
        path = self.run / ".steps" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, json.dumps(document, indent=1) + "\n")
