"""Tells MLflow of an evaluation: its figures, its verdict and its report, in the run of the policy's training."""

from __future__ import annotations

from pathlib import Path

import msgspec

from components.evaluation.metrics_types import Metrics
from components.evaluation.report.terminal_report import METRICS, REPORT, SUMMARY
from components.platform.launcher.executor import flatten_numbers
from components.platform.mlflow import POLICY_TAG, Tracker
from components.platform.storage.uri import display_path


def track_evaluation(output: Path, metrics: Metrics) -> None:
    """Send what an evaluation published in `output`, if the environment names a server."""
    tags = {POLICY_TAG: metrics.inputs.policy_digest or ""}
    tracker = Tracker(f"evaluation in {display_path(output)}", tags, continues_finished=True)
    group = "release" if metrics.policy_compiled_by == "release" else "evaluation"
    figures = flatten_numbers(msgspec.to_builtins(metrics))
    tracker.log([(f"{group}.{name}", value, 0) for name, value in figures.items()])
    tracker.hurry()
    files = {f"{group}/{name}": output / name for name in (REPORT, METRICS, SUMMARY)}
    tracker.end("FINISHED", {f"mlgo.{group}.verdict": metrics.verdict}, files)
