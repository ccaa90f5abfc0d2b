"""Which inlining decisions can be flipped, and which functions that can change, read from the base's log.

A decision is about a call of `callee` in `caller`. Taking it the other way changes the caller; the functions that the
caller's code was inlined into; and the callee, where its definition goes when nothing uses it and this decision settles
that: it is gone already, or this is the last of its calls that was not inlined.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from components.compiler.callsites import Callsites

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


def single_flips(calls: Callsites, hosts: Hosts) -> list[Flip]:
    """Return the flips of one decision that can be measured, in the order of the decisions."""
    refused = np.bincount(calls.callee[hosts.emitted & ~calls.inlined], minlength=len(calls.names))
    settles = calls.discardable & (~hosts.exists | (refused <= 1))
    flips: list[Flip] = []
    for i in np.flatnonzero(hosts.emitted).tolist():
        callee = int(calls.callee[i])
        changes = hosts.of(int(calls.caller[i]))
        if changes is not None:
            changes = changes | {callee} if settles[callee] else changes
            flips.append(Flip(np.array([i], np.intp), callee, changes, changes | {callee}))
    return flips


def callee_flips(calls: Callsites, action: npt.NDArray[np.int64], hosts: Hosts) -> list[Flip]:
    """Return the flips of all calls of a callee that were refused, or of all that were inlined, where they are several.

    A definition that the linker may drop goes when its last call does, so the first of two refused calls looks like a
    loss, and the second one, too: only together do they pay. Of other definitions only many calls are flipped together.

    Args:
        action: int64 [N], 1 to inline.
    """
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
        changes = frozenset({callee} if calls.discardable[callee] else ()).union(*known)
        if len(known) == len(of_callers) and len(changes) <= MAX_INFLUENCED:
            flips.append(Flip(np.sort(decisions).astype(np.intp), callee, changes, changes | {callee}))
    return flips


class Hosts:
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
