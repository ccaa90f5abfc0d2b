"""Determines which inlining decisions can be flipped, and which functions a flip can change, from the base's log.

A decision is about a call of `callee` in `caller`. A flip changes the caller, the functions that the caller's code was
inlined into, and the callee if its definition is dropped when it has no uses. If the object does not define the callee,
a flip adds or removes its code, and with it the functions that are in the object only because that code calls them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from components.core.compiler.logs.callsites import Callsites
from components.core.counterfactual.flips import Flip

MAX_INFLUENCED = 40
"""A decision is not measured if its caller was inlined into more functions: it would exclude most other flips."""
FEW_CALLS = 12
"""If more calls of a callee have the same decision, flipping all of them almost never pays when no single flip does.
They are flipped together because that measures all of them: tests call a helper hundreds of times in one function, and
single flips in one function exclude each other."""


def list_single_flips(calls: Callsites, action: npt.NDArray[np.int64], inlined_into: InlinedInto) -> list[Flip]:
    """Return the measurable flips of single decisions, in their order. action: int64 [N], 1 to inline."""
    dependent = DependentDefinitions(calls, inlined_into.exists)
    flips: list[Flip] = []
    for i in np.flatnonzero(inlined_into.emitted).tolist():
        callee = int(calls.callee[i])
        changes = inlined_into.of(int(calls.caller[i]))
        if changes is not None:
            flips.append(Flip(np.array([i], np.intp), 1 - int(action[i]), changes | dependent.on(callee), callee))
    return flips


def list_callee_flips(calls: Callsites, action: npt.NDArray[np.int64], inlined_into: InlinedInto) -> list[Flip]:
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
        of_few = [changed for changed in per_caller if changed is not None]
        changes = dependent.on(callee).union(*of_few)
        if len(of_few) == len(per_caller) and len(changes) <= MAX_INFLUENCED:
            alternative = 1 - int(action[decisions[0]])
            flips.append(Flip(np.sort(decisions).astype(np.intp), alternative, changes, callee))
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
        self._containing: dict[int, frozenset[int] | None] = {}
        self.exists = exists
        callers = {caller: self.of(caller) for caller in np.unique(calls.caller).tolist()}
        emitted = {caller for caller, into in callers.items() if into is None or exists[list(into)].any()}
        self.emitted = np.array([caller in emitted for caller in calls.caller.tolist()], bool)

    def of(self, function: int) -> frozenset[int] | None:
        """Return the function and those it was inlined into; None if they are more than MAX_INFLUENCED."""
        if function not in self._containing:
            containing, pending = {function}, [function]
            while pending and len(containing) <= MAX_INFLUENCED:
                for caller in self._into.get(pending.pop(), ()):
                    if caller not in containing:
                        containing.add(caller)
                        pending.append(caller)
            self._containing[function] = frozenset(containing) if len(containing) <= MAX_INFLUENCED else None
        return self._containing[function]


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
        dependent: set[int] = {callee} if self._discardable[callee] else set()
        # The functions that a defined callee calls are defined already.
        pending = [] if self._exists[callee] else [callee]
        while pending:
            new = self._calls.get(pending.pop(), set()) - dependent
            dependent |= new
            pending += new
        return frozenset(dependent)
