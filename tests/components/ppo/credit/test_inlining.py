"""Worth of inlining decisions: attribution of changes, and real flips against the same flips one at a time."""

from __future__ import annotations

import numpy as np
import pytest

from components.compiler.advisor import Advisor
from components.compiler.callsites import Callsites
from components.compiler.compile import Compiler, Request, Sample
from components.compiler.function_sizes import FunctionSizes
from components.ppo.credit.inlining import FlipPlan, measure_flips, plan_flips

NAMES = ["f", "g", "h", "once"]


def sizes(**of: int) -> FunctionSizes:
    instructions = np.array(list(of.values()), np.int64)
    none = np.zeros_like(instructions)
    text = int(instructions.sum())
    sections = {".text": text, ".rodata": 0, ".eh_frame": 0, ".gcc_except_table": 0}
    entry = np.arange(len(of), dtype=np.int32)
    weak = np.zeros(len(of), bool)
    return FunctionSizes(list(of), weak, entry, instructions, none, none, none, {}, sections, text)


def sample(inlined: list[bool], discardable: tuple[str, ...] = ("once",), **of: int) -> Sample:
    """f calls once, g calls h: two decisions that touch nothing in common."""
    calls = Callsites(
        np.array([0, 1], np.int32), np.array([3, 2], np.int32), np.array(inlined), NAMES,
        np.array([name in discardable for name in NAMES]),
    )  # fmt: skip
    functions = sizes(**of)
    return Sample(functions.text_size_bytes, callsites=calls, function_sizes=functions)


def plan_of(base: Sample, action: list[int]):
    return plan_flips(base, np.array(action), np.zeros(2), 3, np.random.default_rng(0))


def test_changes_are_attributed_to_the_flip_whose_influence_they_are_in() -> None:
    base = sample([False, False], f=100, g=50, h=30, once=80)
    plan = plan_of(base, [0, 0])
    assert [flips.tolist() for flips in plan.flip_sets] == [[0, 1]]
    (forced,) = plan.forced
    assert {tuple(forced.names[i] for i in row[:2]) + tuple(row[2:]) for row in forced.rows.tolist()} == {
        ("f", "once", 0, 1), ("g", "h", 0, 1),
    }  # fmt: skip
    measured = measure_flips(base, plan, [sample([True, True], f=150, g=64, h=30)])
    np.testing.assert_array_equal(measured.decision, [0, 1])
    np.testing.assert_array_equal(measured.saved_bytes, [30, -14])  # once is gone; h stays, and g grew
    assert (measured.attributed_error_bytes, measured.attributed_bytes, measured.void) == (0, 44, 0)


def test_what_disappears_without_being_asked_voids_its_flip_only() -> None:
    base = sample([False, False], f=100, g=50, h=30, once=80)
    measured = measure_flips(base, plan_of(base, [0, 0]), [sample([True, True], f=90, h=30)])
    np.testing.assert_array_equal(measured.decision, [0])
    assert measured.void == 1 and measured.attributed_error_bytes == 50


def test_a_share_keeps_the_numbers_of_its_flip_sets() -> None:
    base = sample([False, False], f=100, g=50, h=30, once=80)
    plan = plan_flips(base, np.zeros(2, np.int64), np.array([1.0, 0.0]), 3, np.random.default_rng(0))
    again = FlipPlan(plan.influence, plan.flip_sets * 5, plan.forced * 5, range(5))
    second = again.share(1, 3)
    measured = measure_flips(base, second, [sample([True, True], f=150, g=64, h=30)] * 2)
    np.testing.assert_array_equal(measured.decision, [0, 0, 1, 1])
    np.testing.assert_array_equal(measured.flip_set, [1, 4, 1, 4])


def test_a_weak_function_counts_by_what_the_link_keeps() -> None:
    base = sample([False, False], f=100, g=50, h=30, once=80)
    flipped = [sample([True, True], f=150, g=64, h=30)]
    measured = measure_flips(base, plan_of(base, [0, 0]), flipped, {"once": 4, "g": 2})
    np.testing.assert_array_equal(measured.saved_bytes, [80 / 4 - 50, -14 / 2])


@pytest.mark.slow
def test_flips_that_share_a_compile_are_worth_what_they_are_alone(training_toolchain, tiny_corpus) -> None:
    compiler = Compiler(training_toolchain / "bin" / "clang", "inlining")
    checked = 0
    for module in tiny_corpus.modules:
        base = compiler(Request(module, Advisor("log"), want_functions=True)).samples[0]
        assert base.log is not None and base.callsites is not None
        if not base.log.decisions:
            continue
        action = base.log.contexts[0].columns["inlining_decision"].reshape(-1)
        plan = plan_flips(base, action, np.zeros(len(action)), 4, np.random.default_rng(1))
        assert max(map(len, plan.flip_sets)) > 1
        shared = compiler(Request(module, Advisor("log", samples=len(plan.forced)), True, forced=plan.forced))
        measured = measure_flips(base, plan, shared.samples)
        alone = tuple(plan.alone(int(decision)) for decision in measured.decision[:8])
        single = compiler(Request(module, Advisor("log", samples=len(alone)), True, forced=alone)).samples
        assert all(sample.unmatched == 0 for sample in single)
        real = [base.text_size_bytes - sample.text_size_bytes for sample in single]
        error = np.abs(measured.saved_bytes[: len(real)] - real).sum()
        assert error <= 0.1 * np.abs(real).sum() + 16 * len(real)  # alignment of constants is nobody's
        checked += len(real)
    assert checked > 8

