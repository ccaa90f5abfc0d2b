"""report.csv: the performance report of ml-compiler-opt's demos, four columns."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from components.evaluation.measurements import BASELINE, POLICY, Measurements
from components.evaluation.score_measurements import ScoreMeasurements

HEADER = ("module_name", "identifier", "heuristic_bytes", "policy_bytes")
IDENTIFIER = "default"  # inlining has one context per module; the demo calls its identifier so
SCORE_HEADER = ("module_name", "identifier", "heuristic_score", "policy_score")


def write_report_csv(path: Path, measured: Measurements) -> None:
    """Writes module name, identifier, text size under the heuristic and under the policy (bytes), in module order."""
    sizes = zip(measured.modules, measured.sizes[BASELINE].tolist(), measured.sizes[POLICY].tolist(), strict=True)
    _write(path, HEADER, ((module, IDENTIFIER, heuristic, policy) for module, heuristic, policy in sizes))


def write_score_csv(path: Path, measured: ScoreMeasurements) -> None:
    """Writes module name, function as identifier, its score under the heuristic and under the policy, in module order.

    The identifier of the register allocator's demo is the function, too: it is the context of its training log."""
    modules = (measured.modules[place] for place in measured.module.tolist())
    scores = (measured.scores[variant].tolist() for variant in (BASELINE, POLICY))
    _write(path, SCORE_HEADER, zip(modules, measured.functions, *scores, strict=True))


def _write(path: Path, header: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
