"""Tells MLflow of a training: its parameters, its curve, and the policy at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from components.platform.launcher.mlflow import POLICY_TAG, Metric, Tracker
from components.platform.storage.manifest import digest
from components.platform.storage.shared_state.root_lease import LeaseLost, RootLease
from components.platform.storage.uri import display_path

RUN = "mlflow_run"
"""Field of the root directory's document with the ID of the run, so that a resumed training goes on in it."""
_FINISH_S, _INTERRUPT_S = 60.0, 2.0
"""How long a step waits at its end: for the policy's upload, and where the process is to end soon."""


class TrainingTracker:
    """The run of a training: one, however often it is interrupted and resumed. It is ended as the block ends.

    Args:
        parameters: makes them, if there is a server.
    """

    def __init__(self, root: Path, parameters: Callable[[], Mapping[str, object]]) -> None:
        self._name, self._parameters = f"training in {display_path(root)}", parameters
        self._tracker: Tracker | None = None
        self._sent = 0

    def start(self, lease: RootLease) -> None:
        """Start to tell of the training that holds this lease."""
        known = str(lease.before.get(RUN, ""))
        tracker = Tracker(self._name, {}, known, lambda run: lease.update(**{RUN: run}))
        self._tracker = tracker if tracker.is_on else None

    def send(self, curve: Sequence[Mapping[str, float]]) -> None:
        """Send the rows of the curve that are not sent yet; the last one may still get values."""
        self._send(curve[:-1])

    def finish(self, policy: Path, curve: Sequence[Mapping[str, float]]) -> None:
        """Send the rest of the curve and the policy.

        Args:
            policy: the published artifact.
        """
        self._send(curve)
        if self._tracker is not None and self._tracker.has_started:
            files = {f"policy/{path.relative_to(policy)}": path for path in sorted(policy.rglob("*")) if path.is_file()}
            self._tracker.end("FINISHED", _FINISH_S, {POLICY_TAG: digest(policy)}, files)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The run of a lost lease is the successor's.
        if error is not None and not isinstance(error, LeaseLost) and self._tracker and self._tracker.has_started:
            status = "FAILED" if isinstance(error, Exception) else "KILLED"
            self._tracker.end(status, _INTERRUPT_S, {}, {})

    def _send(self, rows: Sequence[Mapping[str, float]]) -> None:
        if self._tracker is not None and rows:
            if not self._tracker.has_started:  # not before: a training that is refused has no run
                self._tracker.log(parameters=self._parameters())
            for row in rows[self._sent :]:
                step = int(row["iteration"])
                metrics: list[Metric] = [(name, value, step) for name, value in row.items() if name != "iteration"]
                self._tracker.log(metrics)
            self._sent = max(self._sent, len(rows))
