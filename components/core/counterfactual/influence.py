"""Determines which inlining decisions can be flipped, and which functions a flip can change, from the base's log.

A decision is about a call of `callee` in `caller`. A flip changes the caller, the functions that the caller's code was
inlined into, and the callee if its definition is dropped when it has no uses. If the object does not define the callee,
a flip adds or removes its code, and with it the functions that are in the object only because that code calls them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from components.core.compiler.logs.callsites import Callsites

MAX_INFLUENCED = 40
"""A decision is not measured if its caller was inlined into more functions: it would exclude most other flips."""
FEW_CALLS = 12
"""If more calls of a callee have the same decision, flipping all of them almost never pays when no single flip does.
They are flipped together because that measures all of them: tests call a helper hundreds of times in one function, and
single flips in one function exclude each other."""


@dataclass(frozen=True)
class Flip:
    """Decisions of a base compile that are flipped together; functions are indices of `Callsites.names`.

    Attributes:
        decisions: intp [n], ascending: a single one, or those about all calls of `callee` with the same decision.
        callee: the called function.
        changes: the functions whose size the flip can change.
        touches: `changes` and the callee; flips may share a compile if their `touches` are disjoint.
    """

    decisions: npt.NDArray[np.intp]
    callee: int
    changes: frozenset[int]
    touches: frozenset[int]


def single_flips(calls: Callsites, inlined_into: InlinedInto) -> list[Flip]:
    """Return the measurable flips of single decisions, in the order of the decisions."""
    dependent = DependentDefinitions(calls, inlined_into.exists)
    flips: list[Flip] = []
    for i in np.flatnonzero(inlined_into.emitted).tolist():
        callee = int(calls.callee[i])
        changes = inlined_into.of(int(calls.caller[i]))
        if changes is not None:
            changes = changes | dependent.on(callee)
            flips.append(Flip(np.array([i], np.intp), callee, changes, changes | {callee}))
    return flips


def callee_flips(calls: Callsites, action: npt.NDArray[np.int64], inlined_into: InlinedInto) -> list[Flip]:
    """Return the flips of all refused calls of a callee, or of all inlined ones, if there are at least two.

    A discardable definition is dropped with its last call. Therefore, inlining one of two refused calls looks like a
    loss for either call; only inlining both pays. Calls of other definitions are flipped together only if there are
    more than FEW_CALLS.

    Args:
        action: int64 [N], 1 to inline.
    """
    dependent = DependentDefinitions(calls, inlined_into.exists)
    flips: list[Flip] = []
    order = np.lexsort((action, calls.callee.astype(np.int64)))
    order = order[inlined_into.emitted[order]]
    ends = np.flatnonzero(np.diff(calls.callee[order]) | np.diff(action[order])) + 1
    for decisions in np.split(order, ends):
        callee = int(calls.callee[decisions[0]]) if len(decisions) else -1
        if len(decisions) < 2 or not (calls.discardable[callee] or len(decisions) > FEW_CALLS):
            continue
        if action[decisions[0]] == 0 and not inlined_into.exists[callee]:
            continue
        per_caller = [inlined_into.of(caller) for caller in set(calls.caller[decisions].tolist())]
        known = [changed for changed in per_caller if changed is not None]
        changes = dependent.on(callee).union(*known)
        if len(known) == len(per_caller) and len(changes) <= MAX_INFLUENCED:
            flips.append(Flip(np.sort(decisions).astype(np.intp), callee, changes, changes | {callee}))
    return flips


class InlinedInto:
    """The functions that contain each function's code: itself and, transitively, those that it was inlined into.

    Attributes:
        exists: bool [M], whether the object defines the function.
        emitted: bool [N], whether the object contains the code that a decision is about, in the caller or in a function
            that it was inlined into. Code of available_externally functions, and what only they call, is dropped.
    """

    def __init__(self, calls: Callsites, exists: npt.NDArray[np.bool_]) -> None:
        pairs = np.stack([calls.callee[calls.inlined], calls.caller[calls.inlined]], 1)
        self._into: dict[int, list[int]] = {}
        for callee, caller in np.unique(pairs, axis=0).tolist():
            self._into.setdefault(callee, []).append(caller)
        self._known: dict[int, frozenset[int] | None] = {}
        self.exists = exists
        callers = {caller: self.of(caller) for caller in np.unique(calls.caller).tolist()}
        found = {caller for caller, into in callers.items() if into is None or exists[list(into)].any()}
        self.emitted = np.array([caller in found for caller in calls.caller.tolist()], bool)

    def of(self, function: int) -> frozenset[int] | None:
        """Return the function and those it was inlined into; None if they are more than MAX_INFLUENCED."""
        if function not in self._known:
            found, pending = {function}, [function]
            while pending and len(found) <= MAX_INFLUENCED:
                for caller in self._into.get(pending.pop(), ()):
                    if caller not in found:
                        found.add(caller)
                        pending.append(caller)
            self._known[function] = frozenset(found) if len(found) <= MAX_INFLUENCED else None
        return self._known[function]


class DependentDefinitions:
    """The functions whose definitions may appear or disappear with the code of a callee, including the callee."""

    def __init__(self, calls: Callsites, exists: npt.NDArray[np.bool_]) -> None:
        refused = ~calls.inlined
        may_appear = calls.discardable & ~exists
        # A function that the object calls and does not define is available_externally: it is never emitted.
        may_appear[calls.callee[refused & exists[calls.caller]]] = False
        bringing = refused & may_appear[calls.callee]
        self._calls: dict[int, set[int]] = {}
        for caller, callee in zip(calls.caller[bringing].tolist(), calls.callee[bringing].tolist(), strict=True):
            self._calls.setdefault(caller, set()).add(callee)
        self._discardable = calls.discardable
        self._exists = exists

    def on(self, callee: int) -> frozenset[int]:
        """Return the callee if it is discardable and, if the object does not define it, the functions that it calls."""
        found: set[int] = {callee} if self._discardable[callee] else set()
        # The functions that a defined callee calls are defined already.
        pending = [] if self._exists[callee] else [callee]
        while pending:
            new = self._calls.get(pending.pop(), set()) - found
            found |= new
            pending += new
        return frozenset(found)
