"""report.json of the warmstart step."""

from __future__ import annotations

from dataclasses import dataclass

REPORT = "report.json"


@dataclass(frozen=True)
class Report:
    """Figures of the run.

    agreement: with the heuristic, on all held-out decisions (NaN, written as null, if none are held out);
    training_agreement: on those learnt from. decisions_per_s and tracing_s: see `clone.Cloned`. loss: nats.
    """

    agreement: float
    training_agreement: float
    decisions: int
    heldout_decisions: int
    epochs: int
    decisions_per_s: float
    training_s: float
    tracing_s: float
    loss: float

    def to_json(self) -> dict[str, float | None]:
        return {name: value if value == value else None for name, value in vars(self).items()}
