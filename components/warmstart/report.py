"""report.json of the warmstart step."""

from __future__ import annotations

from dataclasses import dataclass

REPORT = "report.json"


@dataclass(frozen=True)
class Report:
    """Metrics of the run.

    Attributes:
        agreement: fraction of the held-out decisions in which the policy agrees with the heuristic; NaN, written as
            null, if none are held out.
        training_agreement: the same for the training decisions.
        decisions, heldout_decisions: number of training and of held-out decisions.
        decisions_per_s, training_s, tracing_s, loss: see `clone.CloneResult`.
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
