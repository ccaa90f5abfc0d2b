"""report.csv: the performance report of the inlining demo, four columns, a row a module."""

from __future__ import annotations

import csv
from pathlib import Path

from components.evaluation.measurements import BASELINE, POLICY, Measurements

HEADER = ("module_name", "identifier", "heuristic_bytes", "policy_bytes")
IDENTIFIER = "default"  # inlining has one context per module; the demo calls its identifier so


def write_report_csv(path: Path, measured: Measurements) -> None:
    """Writes module name, identifier, text size under the heuristic and under the policy (bytes), in module order."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        for module, heuristic, policy in zip(
            measured.modules, measured.sizes[BASELINE].tolist(), measured.sizes[POLICY].tolist(), strict=True
        ):
            writer.writerow((module, IDENTIFIER, heuristic, policy))
