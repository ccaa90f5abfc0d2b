"""Which inlining decisions can be flipped, and which functions that can change, read from the base's log.

A decision is about a call of `callee` in `caller`. Taking it the other way changes the caller; the functions that the
caller's code was inlined into; and the callee, where its definition may go when nothing uses it. The code of a callee
that the object does not define comes or goes with the decision, and with it come or go the functions that are in the
object only if it calls them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from components.core.compiler.callsites import Callsites

MAX_INFLUENCED = 40
"""A decision whose caller went into more functions is not measured: in one compile it would exclude most others."""
FEW_CALLS = 12
"""Of a callee with more calls that are decided alike, all together nearly never pay where none does alone. They are
flipped at once because that measures them all: tests call a helper hundreds of times from one function, and single
flips of one function exclude each other."""


@dataclass(frozen=True)
class Flip:
    """Decisions of a base that are taken the other way together; functions are indices of `Callsites.names`.

    Attributes:
        decisions: intp [n], ascending: one, or all calls of `callee` that the base decided alike.
        callee: what they call.
        changes: the functions whose size the flip can change.
        touches: `changes` and the callee: two flips may share a compile if theirs are disjoint.
    """

    decisions: npt.NDArray[np.intp]
    callee: int
    changes: frozenset[int]
    touches: frozenset[int]


def single_flips(calls: Callsites, hosts: InlinedInto) -> list[Flip]:
    """Return the flips of one decision that can be measured, in the order of the decisions."""
    brought = Brought(calls, hosts.exists)
    flips: list[Flip] = []
    for i in np.flatnonzero(hosts.emitted).tolist():
        callee = int(calls.callee[i])
        changes = hosts.of(int(calls.caller[i]))
        if changes is not None:
            changes = changes | brought.by(callee)
            flips.append(Flip(np.array([i], np.intp), callee, changes, changes | {callee}))
    return flips


def callee_flips(calls: Callsites, action: npt.NDArray[np.int64], hosts: InlinedInto) -> list[Flip]:
    """Return the flips of all calls of a callee that were refused, or of all that were inlined, where they are several.

    A definition that the linker may drop goes when its last call does, so the first of two refused calls looks like a
    loss, and the second one, too: only together do they pay. Of other definitions only many calls are flipped together.

    Args:
        action: int64 [N], 1 to inline.
    """
    brought = Brought(calls, hosts.exists)
    flips: list[Flip] = []
    order = np.lexsort((action, calls.callee.astype(np.int64)))
    order = order[hosts.emitted[order]]
    ends = np.flatnonzero(np.diff(calls.callee[order]) | np.diff(action[order])) + 1
    for decisions in np.split(order, ends):
        callee = int(calls.callee[decisions[0]]) if len(decisions) else -1
        if len(decisions) < 2 or not (calls.discardable[callee] or len(decisions) > FEW_CALLS):
            continue
        if action[decisions[0]] == 0 and not hosts.exists[callee]:
            continue
        of_callers = [hosts.of(caller) for caller in set(calls.caller[decisions].tolist())]
        known = [changed for changed in of_callers if changed is not None]
        changes = brought.by(callee).union(*known)
        if len(known) == len(of_callers) and len(changes) <= MAX_INFLUENCED:
            flips.append(Flip(np.sort(decisions).astype(np.intp), callee, changes, changes | {callee}))
    return flips


class InlinedInto:
    """The functions that each function's code was inlined into, itself first, however deeply.

    Attributes:
        exists: bool [M], whether the object defines the function.
        emitted: bool [N], whether the code that a decision is about is in the object, in its caller or where that was
            inlined. What is available_externally, and what only that calls, is decided about and dropped.
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
        """Return the function and its hosts; None if they are more than MAX_INFLUENCED."""
        if function not in self._known:
            found, left = {function}, [function]
            while left and len(found) <= MAX_INFLUENCED:
                for caller in self._into.get(left.pop(), ()):
                    if caller not in found:
                        found.add(caller)
                        left.append(caller)
            self._known[function] = frozenset(found) if len(found) <= MAX_INFLUENCED else None
        return self._known[function]


class Brought:
    """The functions whose definitions may come or go when a callee's code does, the callee itself among them."""

    def __init__(self, calls: Callsites, exists: npt.NDArray[np.bool_]) -> None:
        refused = ~calls.inlined
        comes = calls.discardable & ~exists
        # What is not defined though a function of the object calls it is available_externally: it never comes.
        comes[calls.callee[refused & exists[calls.caller]]] = False
        bringing = refused & comes[calls.callee]
        self._calls: dict[int, set[int]] = {}
        for caller, callee in zip(calls.caller[bringing].tolist(), calls.callee[bringing].tolist(), strict=True):
            self._calls.setdefault(caller, set()).add(callee)
        self._discardable = calls.discardable
        self._exists = exists

    def by(self, callee: int) -> frozenset[int]:
        """Return the callee, if it is discardable; if the object does not define it, what its code calls, too."""
        found: set[int] = {callee} if self._discardable[callee] else set()
        # What a callee that is defined calls is defined already.
        left = [] if self._exists[callee] else [callee]
        while left:
            new = self._calls.get(left.pop(), set()) - found
            found |= new
            left += new
        return frozenset(found)
