"""Which functions one flip of an inlining decision can change, read from the base's log.

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


@dataclass(frozen=True)
class Influence:
    """What each of N decisions can change if it alone is flipped; functions are indices of `Callsites.names`.

    Attributes:
        changes: by decision, the functions whose size the flip can change; None if there are too many to measure.
        touches: `changes` and the callee: two flips may share a compile if theirs are disjoint.
        callee: int32 [N].
    """

    changes: tuple[frozenset[int] | None, ...]
    touches: tuple[frozenset[int], ...]
    callee: npt.NDArray[np.int32]

    @property
    def measurable(self) -> npt.NDArray[np.intp]:
        """Indices of the decisions that can be measured."""
        return np.flatnonzero([changes is not None for changes in self.changes])


def influence_of(calls: Callsites, exists: npt.NDArray[np.bool_]) -> Influence:
    """Return the influence of each decision of a compile.

    Args:
        exists: bool [M], whether the object defines the function.
    """
    hosts = Hosts(calls)
    refused = np.bincount(calls.callee[~calls.inlined], minlength=len(calls.names))
    settles = calls.discardable & (~exists | (refused <= 1))
    changes: list[frozenset[int] | None] = []
    touches: list[frozenset[int]] = []
    for caller, callee in zip(calls.caller.tolist(), calls.callee.tolist(), strict=True):
        changed = hosts.of(caller)
        if changed is not None and settles[callee]:
            changed = changed | {callee}
        changes.append(changed)
        touches.append((changed or frozenset()) | {callee})
    return Influence(tuple(changes), tuple(touches), calls.callee)


class Hosts:
    """The functions that each function's code was inlined into, itself first, however deeply."""

    def __init__(self, calls: Callsites) -> None:
        pairs = np.stack([calls.callee[calls.inlined], calls.caller[calls.inlined]], 1)
        self._into: dict[int, list[int]] = {}
        for callee, caller in np.unique(pairs, axis=0).tolist():
            self._into.setdefault(callee, []).append(caller)
        self._known: dict[int, frozenset[int] | None] = {}

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
