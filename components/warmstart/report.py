"""report.json of the warmstart step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

REPORT = "report.json"


@dataclass(frozen=True)
class WarmstartReport:
    """Metrics of the run.

    Attributes:
        agreement: fraction of the compared decisions in which the policy agrees with the heuristic; NaN, written as
            null, if none are compared.
        training_agreement: the same for the training decisions; NaN if there was no training.
        decisions, heldout_decisions: number of training and of held-out decisions, both 0 without a training.
        compared_decisions: number of the decisions that `agreement` and `confusion` are about: the held-out ones, or,
            without a training, those of all modules of the trace, or a sample of them.
        confusion: number of compared decisions, int64 [A, A], by the heuristic's action (rows) and the policy's; None
            where actions have no names.
        action_names: the A actions.
        decisions_per_s, training_s: decisions per second of the training loop's wall time, and that time, without its
            evaluation.
        tracing_s: wall time of TensorFlow's tracing, which does not depend on the number of decisions.
        loss: mean of the last epoch, nats per decision.
    """

    agreement: float
    training_agreement: float = math.nan
    decisions: int = 0
    heldout_decisions: int = 0
    compared_decisions: int = 0
    epochs: int = 0
    decisions_per_s: float = math.nan
    training_s: float = 0.0
    tracing_s: float = 0.0
    loss: float = math.nan
    confusion: NDArray[np.int64] | None = None
    action_names: tuple[str, ...] = ()

    @classmethod
    def compare(
        cls, action: NDArray[np.integer[Any]], chosen: NDArray[np.integer[Any]], names: tuple[str, ...], **figures: Any
    ) -> WarmstartReport:
        """Return the report on the heuristic's and the policy's actions, both [N], with other figures."""
        counts = confusion(action, chosen, len(names)) if names else None
        agreement = float(np.mean(chosen == action)) if len(action) else math.nan
        return cls(agreement, compared_decisions=len(action), confusion=counts, action_names=names, **figures)

    def summary(self) -> str:
        """Return the agreement in words."""
        share = "agrees with the heuristic in {:.2f}% of {} {}".format
        if self.heldout_decisions:
            return share(100 * self.agreement, self.compared_decisions, "held-out decisions")
        if self.compared_decisions:
            return share(100 * self.agreement, self.compared_decisions, "decisions of the trace")
        if self.decisions:
            return share(100 * self.training_agreement, self.decisions, "training decisions; none are held out")
        return "not compared with the heuristic: the trace has no decisions"

    def figures(self) -> dict[str, float]:
        """Return the metrics that are single numbers, without those that are NaN."""
        left_out = ("confusion", "action_names")
        return {name: value for name, value in vars(self).items() if name not in left_out and value == value}

    def to_json(self) -> dict[str, Any]:
        """Return the content of the report's JSON file."""
        document: dict[str, Any] = dict.fromkeys(vars(self)) | self.figures()
        del document["confusion"], document["action_names"]
        matrix = None
        if self.confusion is not None:
            matrix = {"categories": list(self.action_names), "rows": self.confusion.tolist()}
        return document | {"confusion_matrix": matrix}


def confusion(action: NDArray[np.integer[Any]], chosen: NDArray[np.integer[Any]], actions: int) -> NDArray[np.int64]:
    """Return the number of decisions [A, A] by `action` (rows) and `chosen`, both [N] of 0 to A - 1."""
    return np.bincount(action * actions + chosen, minlength=actions * actions).reshape(actions, actions)
