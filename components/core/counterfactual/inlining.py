"""Exact credit of inlining decisions, measured by compiling a module again with some decisions flipped.

The base is a compile under the policy's own decisions. Each further compile flips single decisions, and decisions about
all calls of a callee, that do not disturb each other (`flip_sets`), and repeats all other decisions of the base. The
changes in the functions that a flip can change (`influence`) are attributed to the flip. If one of them other than the
callee disappears, its code moved elsewhere and the measurement is void. The saving of a flip of several calls is
divided by the number of calls that the compile reached: if F inlines G, a call of X that comes with G no longer exists
once the call in G itself is inlined.

Sizes include instructions, unwind entry and exception table. Sampled returns of whole modules explain 0.6% of the
variance of a decision's gain on unseen modules, flips 60 to 80%.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from components.core.compiler.forced_decisions import ForcedDecisions
from components.core.compiler.logs.callsites import Callsites
from components.core.compiler.sample import Sample
from components.core.counterfactual.flip_sets import choose_flip_sets
from components.core.counterfactual.flips import Flip, FlipPlan, FlipSavings
from components.core.counterfactual.influence import FEW_CALLS, InlinedInto, list_callee_flips, list_single_flips

Float64 = npt.NDArray[np.float64]

MAX_ROWS = 32
"""Rows per flip: hundreds of equal decisions with the same mean would outnumber all others of a module."""
_ROW = [("flip", np.intp), ("flip_set", np.int64), ("decision", np.intp), ("together", np.int64), ("saved", np.float64)]


def plan_flips(
    base: Sample,
    action: npt.NDArray[np.int64],
    uncertainty: Float64,
    compiles: int,
    random: np.random.Generator,
    skip: Callable[[Flip], bool] = lambda _: False,
) -> FlipPlan:
    """Choose the flips of at most `compiles` counterfactual compiles.

    Args:
        base: with callsites and function sizes.
        action: int64 [N], the base's decisions, 1 to inline.
        uncertainty: float64 [N], larger where the policy's logits are closer: minus their distance.
        skip: whether a flip need not be measured.
    """
    calls = _callsites(base)
    inlined_into = InlinedInto(calls, ~np.isnan(_sizes(base, calls.names)))
    groups = list_callee_flips(calls, action, inlined_into)
    flips = tuple(flip for flip in (*list_single_flips(calls, action, inlined_into), *groups) if not skip(flip))
    group_size = np.ones(len(action), np.int64)
    for group in groups:
        if len(group.decisions) <= FEW_CALLS:
            group_size[group.decisions] = len(group.decisions)
    flip_uncertainty = np.array([uncertainty[flip.decisions].mean() for flip in flips], np.float64)
    chosen = choose_flip_sets(flips, flip_uncertainty, compiles, random)
    forced = pin_flips(base, action, [[flips[i] for i in flip_set.tolist()] for flip_set in chosen])
    return FlipPlan(flips, group_size, tuple(chosen), forced, range(len(chosen)))


def pin_flips(
    base: Sample, action: npt.NDArray[np.int64], flip_sets: Sequence[Sequence[Flip]]
) -> tuple[ForcedDecisions, ...]:
    """Return forced decisions for each set of flips that repeat all other decisions of the base.

    Features describe the whole module, so after a flip the policy would also change decisions about unrelated calls.
    Those changes are not part of the flip's gain, and would occur in functions that other flips of the set change. The
    policy decides about calls that the base did not have. Calls of the same caller and callee are identified by their
    ordinal: if a flip removes copies of a call, a later call of the pair is mistaken for the first of them.
    """
    calls = _callsites(base)
    ordinal = calls.ordinals()
    every = np.arange(len(action))
    forced: list[ForcedDecisions] = []
    for flips in flip_sets:
        taken = action.copy()
        for flip in flips:
            taken[flip.decisions] = flip.alternative
        forced.append(_force(calls, ordinal, taken, every))
    return tuple(forced)


def force_flips(
    base: Sample, action: npt.NDArray[np.int64], flip_sets: Sequence[Sequence[Flip]]
) -> tuple[ForcedDecisions, ...]:
    """Return forced decisions for each set of flips that leave all other decisions to the policy."""
    calls = _callsites(base)
    ordinal = calls.ordinals()
    decisions = [np.sort(np.concatenate([flip.decisions for flip in flips])) for flips in flip_sets]
    return tuple(_force(calls, ordinal, 1 - action, flipped) for flipped in decisions)


def _force(
    calls: Callsites, ordinal: npt.NDArray[np.int32], action: npt.NDArray[np.int64], forced: npt.NDArray[np.intp]
) -> ForcedDecisions:
    """Return the forced decisions by key, with only the names that occur."""
    keys = np.stack([calls.caller[forced], calls.callee[forced]], 1)
    used, name = np.unique(keys, return_inverse=True)
    rows = np.concatenate([name.reshape(-1, 2), ordinal[forced, None], action[forced, None]], 1)
    return ForcedDecisions(tuple(calls.names[i] for i in used.tolist()), rows.astype(np.int32))


def attribute_savings(
    base: Sample, plan: FlipPlan, flipped: Sequence[Sample], definition_counts: Mapping[str, int] | None = None
) -> FlipSavings:
    """Attribute the changes of the flipped compiles to their flips.

    A flip has a row for each of its decisions, or for MAX_ROWS of them, evenly spaced.

    Args:
        flipped: a sample with function sizes for each of the plan's compiles, with all decisions of the base forced
            but the flipped ones.
        definition_counts: function name -> number of the project's objects that define it, if more than one. The bytes
            of a function are weighted by the share that the link keeps, 1 / number. None gives all full weight.
    """
    calls = _callsites(base)
    before = _sizes(base, calls.names)
    share = np.array([1.0 / (definition_counts or {}).get(name, 1) for name in calls.names])
    rows: list[tuple[int, int, int, int, float]] = []
    error = attributed = 0.0
    for number, flip_set, sample in zip(plan.numbers, plan.flip_sets, flipped, strict=True):
        after = _sizes(sample, calls.names)
        gone = ~np.isnan(before) & np.isnan(after)
        change = np.nan_to_num(after) - np.nan_to_num(before)
        is_reached = np.ones(len(calls.caller), bool)
        is_reached[sample.unreached] = False
        total = 0.0
        for i in flip_set.tolist():
            flip = plan.flips[i]
            functions = np.fromiter(flip.changes, np.intp, len(flip.changes))
            if np.any(gone[functions] & (functions != flip.callee)):
                continue
            own = float(change[functions].sum())
            total += own
            attributed += abs(own)
            reached = flip.decisions[is_reached[flip.decisions]]
            if not len(reached):
                continue
            each = -float((change * share)[functions].sum()) / len(reached)
            spaced = reached[:: -(-len(reached) // MAX_ROWS)]
            rows += [(i, number, decision, len(reached), each) for decision in spaced.tolist()]
        error += abs(total - (sample.text_size_bytes - base.text_size_bytes))
    table = np.array(rows, _ROW)
    return FlipSavings(
        flip=table["flip"],
        flip_set=table["flip_set"],
        decision=table["decision"],
        alternative=np.array([flip.alternative for flip in plan.flips], np.int64)[table["flip"]],
        together=table["together"],
        group_size=plan.group_size[table["decision"]],
        saved=table["saved"],
        error=error,
        attributed=attributed,
    )


def _sizes(sample: Sample, names: Sequence[str]) -> Float64:
    """Return float64 [names], the bytes of each function, NaN if the object does not define it."""
    if sample.function_sizes is None:
        raise ValueError("flips need the sizes of functions")
    sizes = sample.function_sizes.by_name()
    return np.array([sizes.get(name, np.nan) for name in names], np.float64)


def _callsites(sample: Sample) -> Callsites:
    if sample.callsites is None:
        raise ValueError("flips need the callsites of the base")
    return sample.callsites
