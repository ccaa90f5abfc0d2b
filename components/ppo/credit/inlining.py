"""What single inlining decisions are worth, measured by compiling a module again with some of them flipped.

The base is a compile under the policy's own decisions. Each further compile flips a set of decisions that do not
disturb each other (`flip_sets`); what changes in the functions of a flip's own influence (`influence`), that flip
caused. If a function of it other than the callee disappears, its code went elsewhere and the measurement is void.

Sizes are whole sizes: instructions, unwind entry and exception table. Sampled returns of whole modules explain 0.6% of
the variance of a decision's worth on unseen modules, flips 60 to 80% (ARCHITECTURE.md, fact 6).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from components.compiler.callsites import Callsites
from components.compiler.compile import Sample
from components.compiler.forced_decisions import ForcedDecisions, ordinals
from components.ppo.credit.flip_sets import choose_flip_sets
from components.ppo.credit.influence import Influence, influence_of

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class FlipPlan:
    """The counterfactual compiles of one module.

    Attributes:
        influence: of the base's N decisions.
        flip_sets: per compile, the decisions to flip.
        forced: per compile, the same for the compiler.
        numbers: per compile, the number of its flip set among all of the module's.
    """

    influence: Influence
    flip_sets: tuple[npt.NDArray[np.intp], ...]
    forced: tuple[ForcedDecisions, ...]
    numbers: range

    def share(self, share: int, shares: int) -> FlipPlan:
        """Return every `shares`-th compile from number `share` on: the first sets flip more than the last."""
        return FlipPlan(
            self.influence, self.flip_sets[share::shares], self.forced[share::shares], self.numbers[share::shares]
        )

    def alone(self, decision: int) -> ForcedDecisions:
        """Return what flips one decision of the plan and nothing else, to compare with."""
        for flips, forced in zip(self.flip_sets, self.forced, strict=True):
            if len(places := np.flatnonzero(flips == decision)):
                return ForcedDecisions(forced.names, forced.rows[places])
        raise ValueError(f"decision {decision} is in no flip set")


@dataclass(frozen=True)
class MeasuredFlips:
    """m measurements of flips of one base.

    Attributes:
        decision: intp [m], indices of the base's decisions, ascending.
        flip_set: int64 [m], the number of the flip set that a decision was in; no decision is twice in one.
        saved_bytes: float64 [m], by how much the objective is smaller with the decision flipped.
        attributed_error_bytes: over the compiles, sum of |attributed change - real change of the text|.
        attributed_bytes: over all measurements, sum of |attributed change|.
        void: measurements that were thrown away.
    """

    decision: npt.NDArray[np.intp]
    flip_set: npt.NDArray[np.int64]
    saved_bytes: Float64
    attributed_error_bytes: float
    attributed_bytes: float
    void: int


def plan_flips(
    base: Sample, action: npt.NDArray[np.int64], uncertainty: Float64, compiles: int, random: np.random.Generator
) -> FlipPlan:
    """Choose the flips of at most `compiles` counterfactual compiles.

    Args:
        base: with callsites and function sizes.
        action: int64 [N], the base's decisions, 1 to inline. uncertainty: float64 [N] of the policy.
    """
    calls = _callsites(base)
    influence = influence_of(calls, ~np.isnan(_sizes(base, calls.names)))
    chosen = choose_flip_sets(influence.changes, influence.touches, uncertainty, compiles, random)
    ordinal = ordinals(calls.caller, calls.callee)
    forced = tuple(_forced(calls, ordinal, action, flips) for flips in chosen)
    return FlipPlan(influence, tuple(chosen), forced, range(len(chosen)))


def _forced(
    calls: Callsites, ordinal: npt.NDArray[np.int32], action: npt.NDArray[np.int64], flips: npt.NDArray[np.intp]
) -> ForcedDecisions:
    """Key and opposite action of each flip, with only the names that occur."""
    keys = np.stack([calls.caller[flips], calls.callee[flips]], 1)
    used, places = np.unique(keys, return_inverse=True)
    rows = np.concatenate([places.reshape(-1, 2), ordinal[flips, None], 1 - action[flips, None]], 1)
    return ForcedDecisions(tuple(calls.names[i] for i in used.tolist()), rows.astype(np.int32))


def measure_flips(
    base: Sample, plan: FlipPlan, flipped: Sequence[Sample], objects: Mapping[str, int] | None = None
) -> MeasuredFlips:
    """Attribute the changes of the flipped compiles to their flips.

    Args:
        flipped: one for each of the plan's compiles, with function sizes.
        objects: function name -> how many of the project's objects define it, of those that several do. A function's
            bytes count by the share that the link keeps, 1 / number. None counts what each module has.
    """
    calls = _callsites(base)
    before = _sizes(base, calls.names)
    kept = np.array([1.0 / (objects or {}).get(name, 1) for name in calls.names])
    measured: list[tuple[int, int, float]] = []
    error = attributed = 0.0
    void = 0
    for number, flips, sample in zip(plan.numbers, plan.flip_sets, flipped, strict=True):
        after = _sizes(sample, calls.names)
        gone = ~np.isnan(before) & np.isnan(after)
        change = np.nan_to_num(after) - np.nan_to_num(before)
        total = 0.0
        for i in flips.tolist():
            influenced = plan.influence.changes[i]
            assert influenced is not None
            functions = np.fromiter(influenced, np.intp, len(influenced))
            if np.any(gone[functions] & (functions != calls.callee[i])):
                void += 1
                continue
            own = float(change[functions].sum())
            total += own
            attributed += abs(own)
            measured.append((i, number, -float((change * kept)[functions].sum())))
        error += abs(total - (sample.text_size_bytes - base.text_size_bytes))
    decision, flip_set, saved = zip(*sorted(measured), strict=True) if measured else ((), (), ())
    return MeasuredFlips(
        np.array(decision, np.intp), np.array(flip_set, np.int64), np.array(saved, np.float64), error, attributed, void
    )


def _sizes(sample: Sample, names: Sequence[str]) -> Float64:
    """float64 [names]: bytes of each function, NaN where the object does not define it."""
    if sample.function_sizes is None:
        raise ValueError("flips need the sizes of functions")
    sizes = sample.function_sizes.by_name()
    return np.array([sizes.get(name, np.nan) for name in names], np.float64)


def _callsites(sample: Sample) -> Callsites:
    if sample.callsites is None:
        raise ValueError("flips need the callsites of the base")
    return sample.callsites
