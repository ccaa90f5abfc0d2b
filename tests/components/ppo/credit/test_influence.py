"""Which functions a flip can change."""

from __future__ import annotations

import numpy as np

from components.compiler.callsites import Callsites
from components.ppo.credit.influence import MAX_INFLUENCED, Hosts, influence_of


def callsites(names: str, calls: list[tuple[str, str, bool]], discardable: str = "") -> Callsites:
    index = {name: i for i, name in enumerate(names)}
    return Callsites(
        np.array([index[a] for a, _, _ in calls], np.int32),
        np.array([index[b] for _, b, _ in calls], np.int32),
        np.array([inlined for _, _, inlined in calls], bool),
        list(names),
        np.array([name in discardable for name in names], bool),
    )


def named(calls: Callsites, functions: frozenset[int] | None) -> str:
    assert functions is not None
    return "".join(sorted(calls.names[i] for i in functions))


def test_a_function_s_code_is_followed_however_deeply_it_went() -> None:
    calls = callsites("abcd", [("b", "a", True), ("c", "b", True), ("d", "c", False), ("d", "a", True)])
    hosts = Hosts(calls)
    assert [named(calls, hosts.of(i)) for i in range(4)] == ["abcd", "bc", "c", "d"]


def test_cycles_of_inlining_end() -> None:
    calls = callsites("ab", [("a", "b", True), ("b", "a", True)])
    assert named(calls, Hosts(calls).of(0)) == "ab"


def test_a_callee_counts_where_this_decision_settles_whether_it_stays() -> None:
    calls = callsites("abcde", [("a", "b", False), ("a", "c", False), ("d", "c", False), ("a", "e", True)], "bce")
    exists = np.array([True, True, True, True, False])
    influence = influence_of(calls, exists)
    # b has one call left; c another one; e is gone and comes back if its call is not inlined.
    assert [named(calls, changed) for changed in influence.changes] == ["ab", "a", "d", "ae"]
    assert [named(calls, touched) for touched in influence.touches] == ["ab", "ac", "cd", "ae"]


def test_an_external_callee_stays_whatever_is_decided() -> None:
    calls = callsites("ab", [("a", "b", True)])
    assert named(calls, influence_of(calls, np.ones(2, bool)).changes[0]) == "a"


def test_code_that_went_everywhere_is_not_measured() -> None:
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
    influence = influence_of(calls, np.ones(count + 2, bool))
    assert influence.changes[-1] is None  # the caller f0 is part of all others
    assert influence.measurable.tolist() == list(range(count))
