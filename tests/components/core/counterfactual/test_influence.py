"""Which functions a flip can change."""

from __future__ import annotations

import numpy as np
import pytest

from components.core.compiler.logs.callsites import Callsites
from components.core.counterfactual.flips import Flip
from components.core.counterfactual.influence import (
    FEW_CALLS,
    MAX_INFLUENCED,
    InlinedInto,
    list_callee_flips,
    list_single_flips,
)
from tests.support.samples import make_callsites


def callsites(names: str, calls: list[tuple[str, str, bool]], discardable: str = "") -> Callsites:
    return make_callsites(calls, discardable, names)


def named(calls: Callsites, functions: frozenset[int] | None) -> str:
    assert functions is not None, "too many"
    return "".join(sorted(calls.names[i] for i in functions))


def flips_of_callees(calls: Callsites, action: np.ndarray, exists: np.ndarray) -> list[Flip]:
    return list_callee_flips(calls, action, InlinedInto(calls, exists))


def flips_of_calls(calls: Callsites, inlined_into: InlinedInto) -> list[Flip]:
    return list_single_flips(calls, calls.inlined.astype(np.int64), inlined_into)


def test_inlining_is_followed_transitively() -> None:
    calls = callsites("abcd", [("b", "a", True), ("c", "b", True), ("d", "c", False), ("d", "a", True)])
    inlined_into = InlinedInto(calls, np.ones(4, bool))
    assert [named(calls, inlined_into.of(i)) for i in range(4)] == ["abcd", "bc", "c", "d"]


def test_inlining_cycles_terminate() -> None:
    calls = callsites("ab", [("a", "b", True), ("b", "a", True)])
    assert named(calls, InlinedInto(calls, np.ones(2, bool)).of(0)) == "ab"


def test_discardable_callee_is_influenced() -> None:
    calls = callsites("abcde", [("a", "b", False), ("a", "c", False), ("d", "c", False), ("a", "e", True)], "be")
    exists = np.array([True, True, True, True, False])
    flips = flips_of_calls(calls, InlinedInto(calls, exists))
    # b has one call left; c stays; e is gone and comes back if its call is not inlined.
    assert [named(calls, flip.changes) for flip in flips] == ["ab", "a", "d", "ae"]
    assert [named(calls, flip.touches) for flip in flips] == ["ab", "ac", "cd", "ae"]


def test_copy_of_a_refused_call_is_not_another_use() -> None:
    # b's only code is in a, and so is its call of c: c goes if either decision is taken the other way.
    calls = callsites("abc", [("b", "c", False), ("a", "b", True), ("a", "c", False)], "bc")
    flips = flips_of_calls(calls, InlinedInto(calls, np.array([True, False, True])))
    assert [named(calls, flip.changes) for flip in flips] == ["abc", "ab", "ac"]


@pytest.mark.parametrize("inlined", [False, True])
def test_functions_called_only_by_absent_callee_are_influenced(inlined: bool) -> None:
    # x is not in the object, nor are c and d that only it calls, but for e, which a calls in vain; f is in x's code.
    calls = callsites(
        "acdefx",
        [("c", "d", False), ("x", "f", True), ("x", "c", False), ("x", "e", False), ("a", "e", False)]
        + [("a", "x", inlined)] * 2,
        "cdefx",
    )
    exists = np.array([name == "a" for name in calls.names])
    inlined_into = InlinedInto(calls, exists)
    of_a = [flip for flip in flips_of_calls(calls, inlined_into) if flip.decisions[0] >= 4]
    assert [named(calls, flip.changes) for flip in of_a] == ["ae", "acdx", "acdx"]
    together = list_callee_flips(calls, calls.inlined.astype(np.int64), inlined_into)
    assert [named(calls, flip.changes) for flip in together if calls.names[flip.callee] == "x"] == ["acdx"] * inlined


def test_calls_of_an_emitted_callee_are_not_influenced() -> None:
    calls = callsites("abc", [("b", "c", False), ("a", "b", False)], "bc")
    flips = flips_of_calls(calls, InlinedInto(calls, np.array([True, True, False])))
    assert [named(calls, flip.changes) for flip in flips] == ["bc", "ab"]


def test_decisions_in_dropped_code_are_not_flipped() -> None:
    # x is available_externally, y only x calls: of c's three calls one is in the object.
    calls = callsites("acxy", [("a", "c", False), ("x", "c", False), ("y", "c", False), ("x", "y", True)], "cy")
    exists = np.array([True, True, False, False])
    flips = flips_of_calls(calls, InlinedInto(calls, exists))
    assert [flip.decisions.tolist() for flip in flips] == [[0]]
    assert named(calls, flips[0].changes) == "ac"
    assert not flips_of_callees(calls, np.zeros(4, np.int64), exists)


def test_external_callee_is_not_influenced() -> None:
    calls = callsites("ab", [("a", "b", True)])
    assert named(calls, flips_of_calls(calls, InlinedInto(calls, np.ones(2, bool)))[0].changes) == "a"


def test_widely_inlined_callers_are_not_measured() -> None:
    count = MAX_INFLUENCED + 1
    names = [f"f{i}" for i in range(count + 2)]
    caller = np.arange(2, count + 2, dtype=np.int32)
    calls = Callsites(
        np.append(caller, 0).astype(np.int32),
        np.append(np.zeros(count), 1).astype(np.int32),
        np.append(np.ones(count, bool), False),
        names,
        np.zeros(count + 2, bool),
    )
    # The last decision's caller f0 is part of all others.
    exists = np.ones(count + 2, bool)
    singles = flips_of_calls(calls, InlinedInto(calls, exists))
    assert [flip.decisions.tolist() for flip in singles] == [[i] for i in range(count)]
    assert not flips_of_callees(calls, np.zeros(count + 1, np.int64), exists)


def test_equal_decisions_about_a_callee_are_flipped_together() -> None:
    calls = callsites(
        "abcde",
        [("a", "c", False), ("b", "c", False), ("d", "c", True), ("e", "c", True), ("e", "d", True), ("a", "e", False)],
        "cd",
    )
    exists = np.array([True, True, True, False, True])
    flips = flips_of_callees(calls, calls.inlined.astype(np.int64), exists)
    assert [flip.decisions.tolist() for flip in flips] == [[0, 1], [2, 3]]
    # d's code is in e.
    assert [named(calls, flip.changes) for flip in flips] == ["abc", "cde"]
    assert [(calls.names[flip.callee], flip.touches == flip.changes) for flip in flips] == [("c", True)] * 2


def test_non_discardable_callees_are_not_flipped_together() -> None:
    several = [("a", "b", False), ("c", "b", False)]
    everywhere, refused = np.ones(3, bool), np.zeros(2, np.int64)
    assert not flips_of_callees(callsites("abc", several), refused, everywhere)  # others may call it
    assert not flips_of_callees(callsites("abc", several, "b"), refused, np.array([True, False, True]))  # gone already
    assert flips_of_callees(callsites("abc", several, "b"), refused, everywhere)
    assert not flips_of_callees(callsites("abc", []), np.zeros(0, np.int64), everywhere)


@pytest.mark.parametrize("discardable", ["", "b"])
def test_many_calls_are_flipped_together_for_any_callee(discardable: str) -> None:
    count = FEW_CALLS + 1
    many = callsites("ab", [("a", "b", False)] * count, discardable)
    [flip] = flips_of_callees(many, np.zeros(count, np.int64), np.ones(2, bool))
    assert flip.decisions.tolist() == list(range(count))
    assert named(many, flip.changes) == "a" + discardable and named(many, flip.touches) == "ab"
