"""Tells MLflow of an evaluation: its figures, its verdict and its report, in a run below that of the training."""

from __future__ import annotations

from pathlib import Path

import msgspec

from components.evaluation.metrics_types import Metrics
from components.evaluation.report.terminal_report import METRICS, REPORT, SUMMARY
from components.platform.launcher.executor import flatten_numbers
from components.platform.launcher.mlflow import POLICY_TAG, Tracker
from components.platform.launcher.step_cost import PREFIX, costs_so_far
from components.platform.storage.uri import display_path

_WAIT_S = 60.0


def track_evaluation(output: Path, metrics: Metrics) -> None:
    """Send what an evaluation published in `output`, if the environment names a server; costs of the run, too."""
    policy = metrics.inputs.policy_digest or ""
    tags = {"mlgo.verdict": metrics.verdict, "mlgo.compiled_by": metrics.policy_compiled_by}
    name = f"evaluation in {display_path(output)}"
    tracker = Tracker(name, tags, parent_tags={POLICY_TAG: policy} if policy else None)
    # Nested ones are of groups, variants and modules: metrics.json has them.
    figures = {key: value for key, value in flatten_numbers(msgspec.to_builtins(metrics)).items() if "." not in key}
    figures |= {
        f"{PREFIX}{task}.{name}": value
        for task, cost in costs_so_far().items()
        for name, value in cost.figures().items()
    }
    tracker.log([(key, value, 0) for key, value in figures.items()])
    tracker.end("FINISHED", _WAIT_S, {}, {file: output / file for file in (REPORT, METRICS, SUMMARY)})
