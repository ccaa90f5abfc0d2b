"""Writes report.csv, the performance report of ml-compiler-opt's demos with four columns."""

from __future__ import annotations

import csv
from pathlib import Path

from components.evaluation.measurements import BASELINE, POLICY, Measurements
from components.platform.console.escape import csv_text

IDENTIFIER = "default"
"""Identifier of a whole module. Inlining has one context per module; the inlining demo uses this identifier."""


def write_report_csv(path: Path, measured: Measurements) -> None:
    """Write module name, identifier, value under the heuristic and under the policy, in module order.

    The identifier of a function is its name, as in the register allocator's demo: the context of its training log.
    """
    unit = measured.objective.labels.unit
    names = ((csv_text(module), csv_text(function or IDENTIFIER)) for module, function in measured.names())
    values = (measured.values[variant].tolist() for variant in (BASELINE, POLICY))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("module_name", "identifier", f"heuristic_{unit}", f"policy_{unit}"))
        writer.writerows((*name, *pair) for name, *pair in zip(names, *values, strict=True))
