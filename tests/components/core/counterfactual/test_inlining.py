"""Worth of inlining decisions: attribution of changes, and real flips against the same flips one at a time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.compiler.sample import Sample
from components.core.counterfactual.inlining import attribute_savings, force_flips, pin_flips, plan_flips
from tests.support.samples import make_callsites, make_sizes


def sample(inlined: list[bool], discardable: tuple[str, ...] = ("once",), **of: int) -> Sample:
    """f calls once, g calls h: two decisions that touch nothing in common."""
    calls = make_callsites([("f", "once", inlined[0]), ("g", "h", inlined[1])], discardable)
    functions = make_sizes(of)
    return Sample(functions.text_size_bytes, callsites=calls, function_sizes=functions)


def plan_of(base: Sample, action: list[int]):
    return plan_flips(base, np.array(action), np.zeros(2), 3, np.random.default_rng(0))


def test_changes_are_attributed_by_influence() -> None:
    base = sample([False, False], f=100, g=50, h=30, once=80)
    plan = plan_of(base, [0, 0])
    assert [flips.tolist() for flips in plan.flip_sets] == [[0, 1]]
    (forced,) = plan.forced
    assert {tuple(forced.names[i] for i in row[:2]) + tuple(row[2:]) for row in forced.rows.tolist()} == {
        ("f", "once", 0, 1),
        ("g", "h", 0, 1),
    }
    measured = attribute_savings(base, plan, [sample([True, True], f=150, g=64, h=30)])
    np.testing.assert_array_equal(measured.decision, [0, 1])
    np.testing.assert_array_equal(measured.alternative, [1, 1])
    np.testing.assert_array_equal(measured.saved, [30, -14])  # once is gone; h stays, and g grew
    assert (measured.error, measured.attributed) == (0, 44)


def test_other_decisions_are_pinned_or_left_to_the_policy() -> None:
    base = sample([False, True], f=100, g=50, h=30, once=80)
    plan = plan_of(base, [0, 1])
    sets = [[flip] for flip in plan.flips]
    action = np.array([0, 1])
    assert [pinned.actions() for pinned in pin_flips(base, action, sets)] == [
        {("f", "once", 0): 1, ("g", "h", 0): 1},
        {("f", "once", 0): 0, ("g", "h", 0): 0},
    ]
    assert [forced.actions() for forced in force_flips(base, action, sets)] == [
        {("f", "once", 0): 1},
        {("g", "h", 0): 0},
    ]


def test_disappearing_function_voids_only_its_flip() -> None:
    base = sample([False, False], f=100, g=50, h=30, once=80)
    measured = attribute_savings(base, plan_of(base, [0, 0]), [sample([True, True], f=90, h=30)])
    np.testing.assert_array_equal(measured.decision, [0])
    assert measured.error == 50


def test_part_of_a_plan_keeps_numbers_of_flip_sets() -> None:
    base = sample([False, False], f=100, g=50, h=30, once=80)
    plan = plan_flips(base, np.zeros(2, np.int64), np.array([1.0, 0.0]), 3, np.random.default_rng(0))
    second = replace(plan, flip_sets=plan.flip_sets * 5, forced=plan.forced * 5, numbers=range(5)).take_part(1, 3)
    measured = attribute_savings(base, second, [sample([True, True], f=150, g=64, h=30)] * 2)
    np.testing.assert_array_equal(measured.decision, [0, 1, 0, 1])
    np.testing.assert_array_equal(measured.flip_set, [1, 1, 4, 4])


def test_weak_functions_are_weighted_by_the_share_that_the_link_keeps() -> None:
    base = sample([False, False], f=100, g=50, h=30, once=80)
    flipped = [sample([True, True], f=150, g=64, h=30)]
    measured = attribute_savings(base, plan_of(base, [0, 0]), flipped, {"once": 4, "g": 2})
    np.testing.assert_array_equal(measured.saved, [80 / 4 - 50, -14 / 2])


def test_joint_saving_is_divided_among_calls() -> None:
    """f and g call once, which neither inlines: one copy costs 60 bytes, the second takes the 100 of once away."""
    calls = make_callsites([("f", "once"), ("g", "once")], ["once"])

    def compiled(**of: int) -> Sample:
        functions = make_sizes(of)
        return Sample(functions.text_size_bytes, callsites=calls, function_sizes=functions)

    base = compiled(f=100, g=50, once=100)
    plan = plan_of(base, [0, 0])
    assert [plan.flips[i].decisions.tolist() for i in plan.flip_sets[0]] == [[0, 1]]
    assert [len(forced.rows) for forced in plan.forced] == [2, 2, 2] and plan.group_size.tolist() == [2, 2]
    outcomes = {
        (0, 1): compiled(f=140, g=90),
        (0,): compiled(f=160, g=50, once=100),
        (1,): compiled(f=100, g=110, once=100),
    }
    flipped = [outcomes[tuple(plan.flips[chosen[0]].decisions.tolist())] for chosen in plan.flip_sets]
    measured = attribute_savings(base, plan, flipped)
    rows = (measured.together, measured.decision, measured.saved)
    saved = set(zip(*(row.tolist() for row in rows), strict=True))
    assert saved == {(2, 0, 10), (2, 1, 10), (1, 0, -60), (1, 1, -60)}
    assert (measured.error, measured.attributed) == (0, 140)


def test_joint_saving_is_divided_among_reached_calls() -> None:
    """g calls once, and f, which inlines g, has a copy of the call: gone as soon as g inlines once."""
    calls = make_callsites([("f", "once"), ("g", "once"), ("f", "g", True)], ["once"])
    base = Sample(250, callsites=calls, function_sizes=make_sizes({"f": 100, "g": 50, "once": 100}))
    plan = plan_flips(base, np.array([0, 0, 1]), np.zeros(3), 4, np.random.default_rng(0))
    (group,) = [i for i, flip in enumerate(plan.flips) if len(flip.decisions) == 2]
    plan = replace(plan, flip_sets=(np.array([group]),), forced=plan.forced[:1], numbers=range(1))
    flipped = Sample(220, callsites=calls, function_sizes=make_sizes({"f": 120, "g": 100}), unreached=np.array([0]))
    measured = attribute_savings(base, plan, [flipped])
    assert (measured.decision.tolist(), measured.together.tolist(), measured.saved.tolist()) == ([1], [1], [30])
    nothing = attribute_savings(base, plan, [replace(flipped, unreached=np.array([0, 1]))])
    assert len(nothing.decision) == 0 and nothing.attributed == 30


@pytest.mark.toolchain
def test_compiles_of_flip_sets_measure_the_same_as_those_of_single_flips(training_toolchain, tiny_corpus) -> None:
    compiler = Compiler(training_toolchain / "bin" / "clang", "inlining")
    checked, error, changed = 0, 0.0, 0.0
    for module in tiny_corpus.modules:
        base = compiler(Request(module, Advisor("log"), want_functions=True)).samples[0]
        assert base.log is not None and base.callsites is not None
        if not base.log.decisions:
            continue
        action = base.log.contexts[0].columns["inlining_decision"].reshape(-1)
        plan = plan_flips(base, action, np.zeros(len(action)), 4, np.random.default_rng(1))
        assert max(map(len, plan.flip_sets)) > 1
        shared = compiler(Request(module, Advisor("log", samples=len(plan.forced)), True, forced=plan.forced))
        measured = attribute_savings(base, plan, shared.samples)
        measured_flips, first = np.unique(measured.flip, return_index=True)
        some = np.random.default_rng(2).permutation(len(measured_flips))[:8]
        flips = [plan.flips[i] for i in measured_flips[some].tolist()]
        alone = pin_flips(base, action, [[flip] for flip in flips])
        single = compiler(Request(module, Advisor("log", samples=len(alone)), True, forced=alone)).samples
        real = [base.text_size_bytes - sample.text_size_bytes for sample in single]
        saved = (measured.saved * measured.together)[first[some]]
        error += np.abs(saved - real).sum()  # alignment of constants is nobody's
        changed += np.abs(real).sum()
        checked += len(real)
    assert checked > 8 and changed > 100 and error <= 0.25 * changed


@pytest.mark.toolchain
def test_flip_does_not_change_other_decisions(training_toolchain, make_corpus, tmp_path) -> None:
    """When one of two calls of a static function is inlined, the heuristic inlines the other, too."""
    steps = "".join(f"x = x * {i + 3} ^ sink[x & {i + 1}]; sink[{i}] = x;" for i in range(40))
    source = f"""
        extern int sink[64];
        static int big(int x) {{ {steps} return x; }}
        int first(int x) {{ return big(x) + 1; }}
        int second(int x) {{ return big(x) * 2; }}
    """
    (module,) = make_corpus(tmp_path / "corpus", {"app/big.c": source}).modules
    compiler = Compiler(training_toolchain / "bin" / "clang", "inlining")
    base = compiler(Request(module, Advisor("log"), want_functions=True)).samples[0]
    assert base.log is not None
    action = base.log.contexts[0].columns["inlining_decision"].reshape(-1)
    assert action.tolist() == [0, 0]
    plan = plan_flips(base, action, np.zeros(2), 3, np.random.default_rng(0))
    of_first = [[flip for flip in plan.flips if flip.decisions.tolist() == [0]]]
    forced = (*pin_flips(base, action, of_first), *force_flips(base, action, of_first))
    samples = compiler(Request(module, Advisor("log", samples=2), True, forced=forced)).samples
    assert ["big" in sample.function_sizes.by_name() for sample in samples] == [True, False]
