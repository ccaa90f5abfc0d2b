"""Tells MLflow of a training: its parameters, its curve, and the policy at its end."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from components.platform.mlflow import POLICY_TAG, Metric, Tracker
from components.platform.storage.manifest import digest
from components.platform.storage.uri import display_path
from components.ppo.checkpointing.fingerprint import folder_of


class TrainingTracker:
    """The run of a training: one, however often it is interrupted and resumed.

    Args:
        root: its directory.
        fingerprint: from training_fingerprint.
        parameters: by name.
    """

    def __init__(self, root: Path, fingerprint: Mapping[str, str], parameters: Mapping[str, object]) -> None:
        place = display_path(root)
        identity = hashlib.sha256(f"{place} {folder_of(fingerprint)}".encode()).hexdigest()[:16]
        self._tracker = Tracker(f"training in {place}", {"mlgo.training": identity})
        self._parameters = parameters
        self._sent = 0

    def send(self, curve: Sequence[Mapping[str, float]]) -> None:
        """Send the parameters and the rows of the curve that are not sent yet; the last one may still get values."""
        self._send(curve[self._sent : -1])

    def interrupted(self) -> None:
        """Say that the training is interrupted."""
        self._tracker.end("KILLED", {}, {})

    def finish(self, policy: Path, curve: Sequence[Mapping[str, float]]) -> None:
        """Send the rest of the curve and the policy.

        Args:
            policy: the published artifact.
        """
        self._tracker.hurry()
        self._send(curve[self._sent :])
        files = {f"policy/{path.relative_to(policy)}": path for path in sorted(policy.rglob("*")) if path.is_file()}
        self._tracker.end("FINISHED", {POLICY_TAG: digest(policy)}, files)

    def _send(self, rows: Sequence[Mapping[str, float]]) -> None:
        metrics: list[Metric] = [
            (name, value, int(row["iteration"])) for row in rows for name, value in row.items() if name != "iteration"
        ]
        if self._tracker.log(metrics, self._parameters):
            self._sent += len(rows)
            self._parameters = {}
