"""Flips: decisions of a compile (the base) that another compile takes otherwise, and what that saves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from components.core.compiler.forced_decisions import ForcedDecisions


@dataclass(frozen=True)
class Flip:
    """Decisions of a base compile that are changed together.

    Attributes:
        decisions: intp [n], ascending, rows of the base's log.
        alternative: the action that replaces the base's.
        changes: the functions whose value the flip can change; indices of `Callsites.names` for inlining, of the log's
            contexts for register allocation.
        callee: for inlining, the function whose calls are decided on.
    """

    decisions: npt.NDArray[np.intp]
    alternative: int
    changes: frozenset[int]
    callee: int | None = None

    @cached_property
    def touches(self) -> frozenset[int]:
        """`changes` and the callee; flips may be in one compile if their `touches` are disjoint."""
        return self.changes if self.callee is None else self.changes | {self.callee}


@dataclass(frozen=True)
class FlipPlan:
    """The counterfactual compiles of one module.

    Attributes:
        flips: the flips that the base allows, or some of them.
        group_size: int64 [N], for each decision the number of decisions in the flip of at most FEW_CALLS calls that
            contains it, else 1.
        flip_sets: for each compile, the indices of its flips.
        forced: for each compile, the decisions that it is given: for inlining all of the base, with those of its flips
            changed; for register allocation those of its flips, at each of which the compile forks.
        numbers: for each compile, the number of its flip set among all of the module's.
    """

    flips: tuple[Flip, ...]
    group_size: npt.NDArray[np.int64]
    flip_sets: tuple[npt.NDArray[np.intp], ...]
    forced: tuple[ForcedDecisions, ...]
    numbers: range

    def take_part(self, part: int, parts: int) -> FlipPlan:
        """Return every `parts`-th compile from number `part` on, because the first sets contain the most flips."""
        every = slice(part, None, parts)
        return replace(self, flip_sets=self.flip_sets[every], forced=self.forced[every], numbers=self.numbers[every])


@dataclass(frozen=True)
class FlipSavings:
    """Measured savings of flips of one base; m rows, at most one for each decision in each flip set.

    Attributes:
        flip: intp [m], index of the flip in the plan.
        flip_set: int64 [m], number of its flip set.
        decision: intp [m], row of the base's log: one of the flip's decisions that the compile reached.
        alternative: int64 [m], the action that replaced the base's.
        together: int64 [m], number of the flip's decisions that the compile reached, among which its saving is split.
        group_size: int64 [m], number of decisions that could be flipped together, see FlipPlan.
        saved: float64 [m], reduction of the objective by the flip, divided by `together`: log score, or bytes weighted
            by the share that the link keeps.
        error: sum over the compiles of |attributed change - real change of the text| in bytes, whatever share the link
            keeps, with the changes of flips that were left out; 0 for register allocation, whose flips do not overlap.
        attributed: sum over all measurements of |attributed change|, in bytes or log score.
    """

    flip: npt.NDArray[np.intp]
    flip_set: npt.NDArray[np.int64]
    decision: npt.NDArray[np.intp]
    alternative: npt.NDArray[np.int64]
    together: npt.NDArray[np.int64]
    group_size: npt.NDArray[np.int64]
    saved: npt.NDArray[np.float64]
    error: float
    attributed: float

    def __len__(self) -> int:
        return len(self.saved)

    @staticmethod
    def concatenate(parts: Sequence[FlipSavings]) -> FlipSavings:
        """Join the savings of at least one part of a module's plan."""
        columns = {field.name: [getattr(part, field.name) for part in parts] for field in fields(FlipSavings)}
        # Sums of bytes are exact in any order; problems with scores have only one part.
        sums = {name: sum(columns.pop(name)) for name in ("error", "attributed")}
        return FlipSavings(**{name: np.concatenate(column) for name, column in columns.items()}, **sums)

    def take(self, rows: npt.NDArray[np.intp]) -> FlipSavings:
        """Return some rows, in the given order."""
        columns: dict[str, Any] = {k: v[rows] for k, v in vars(self).items() if isinstance(v, np.ndarray)}
        return replace(self, **columns)


_NONE = np.zeros(0, np.int64)
NO_SAVINGS = FlipSavings(_NONE, _NONE, _NONE, _NONE, _NONE, _NONE, saved=np.zeros(0), error=0.0, attributed=0.0)
