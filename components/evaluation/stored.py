"""measurements.json: what was measured, for an evaluation that is completed later and for comparisons of two."""

from __future__ import annotations

import json
from pathlib import Path

from components.console import UserError
from components.evaluation.measurements import Measured, Measurements
from components.evaluation.score_measurements import ScoreMeasurements
from components.storage.input_files import MissingFile, expect_shape, read_json

FILE = "measurements.json"

_KINDS: dict[str, type[Measurements] | type[ScoreMeasurements]] = {
    Measurements.measure: Measurements,
    ScoreMeasurements.measure: ScoreMeasurements,
}


def write_measurements(directory: Path, measured: Measured) -> None:
    """Writes measurements.json."""
    document = {"measure": measured.measure, **measured.to_json()}
    (directory / FILE).write_text(json.dumps(document) + "\n", encoding="utf-8")


def read_measurements(directory: Path) -> Measured:
    """Reads measurements.json of an evaluation. UserError if it has none, or it is damaged."""
    path = directory / FILE
    try:
        document = read_json(path, "evaluate again")
    except MissingFile:
        raise UserError(f"{directory} is no evaluation: it has no {FILE}", "make it: mlgo evaluation --help") from None
    with expect_shape(path, "what an evaluation writes", "evaluate again"):
        # Those before there were scores do not say that they are sizes.
        return _KINDS[document.get("measure", Measurements.measure)].from_json(document)
