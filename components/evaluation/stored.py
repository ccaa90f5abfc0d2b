"""measurements.json: what was measured, for an evaluation that is completed later and for comparisons of two."""

from __future__ import annotations

import json
from pathlib import Path

from components.console import UserError
from components.evaluation.measurements import Measured, Measurements
from components.evaluation.score_measurements import ScoreMeasurements

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
        document = json.loads(path.read_text(encoding="utf-8"))
        # Those before there were scores do not say that they are sizes.
        return _KINDS[document.get("measure", Measurements.measure)].from_json(document)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{directory} is no evaluation: it has no {FILE}", "make it: mlgo evaluation --help") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise UserError(f"{path} is damaged ({error!r})", "evaluate again") from None
