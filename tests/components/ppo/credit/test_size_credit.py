"""Credit of decisions, compared with sums computed manually."""

import numpy as np
import pytest

from components.core.compiler.sample import Sample
from components.ppo.credit.size_credit import (
    MAX_INLINED_INTO,
    function_advantages,
    module_advantages,
)
from tests.support.samples import make_callsites, make_sizes


def sample(text, calls, functions, discardable=()):
    """A sample of `text` bytes; calls: caller, callee, True if inlined; functions: name -> bytes."""
    return Sample(text, callsites=make_callsites(calls, discardable), function_sizes=make_sizes(functions))


def test_caller_and_discardable_callee_are_both_counted():
    # b is dropped in the second sample: it costs nothing there.
    first = sample(300, [("a", "b")], {"a": 100, "b": 50}, {"b"})
    second = sample(260, [("a", "b")], {"a": 140}, {"b"})
    one, two = function_advantages([first, second], module_weight=0)
    b = 50 / 2
    assert one == pytest.approx([20 - b])
    assert two == pytest.approx([-20 + b])


def test_exported_callee_is_not_credited():
    first = sample(300, [("a", "b")], {"a": 100, "b": 50})
    second = sample(260, [("a", "b")], {"a": 140, "b": 10})
    assert function_advantages([first, second], 0)[0] == pytest.approx([20])


def test_dropped_caller_is_credited_with_the_functions_it_was_inlined_into():
    # a is inlined into m in the second sample: together they take 50 bytes less than before.
    first = sample(300, [("a", "b"), ("m", "a")], {"a": 100, "m": 10, "b": 5})
    second = sample(260, [("a", "b"), ("m", "a", True)], {"m": 60, "b": 5})
    one, two = function_advantages([first, second], 0)
    both = (100 + 10 - 60) / 2
    assert one == pytest.approx([-both, 25])
    assert two == pytest.approx([both, -25])


def test_transitively_inlined_caller_is_credited_with_all_its_callers():
    first = sample(0, [("a", "x"), ("b", "a", True), ("c", "b", True)], {"c": 200, "x": 1})
    second = sample(0, [("a", "x"), ("b", "a"), ("c", "b")], {"a": 70, "b": 50, "c": 90, "x": 1})
    one = function_advantages([first, second], 0)[0]
    assert one[0] == pytest.approx((70 + 50 + 90 - 200) / 2)
    assert one[1] == pytest.approx((50 + 90 - 200) / 2)
    assert one[2] == pytest.approx((90 - 200) / 2)


def test_function_inlined_into_too_many_is_not_credited():
    into = [f"m{i}" for i in range(MAX_INLINED_INTO)]
    first = sample(0, [("a", "b")] + [(m, "a") for m in into], {"a": 100, "b": 5} | dict.fromkeys(into, 10))
    second = sample(0, [("a", "b")] + [(m, "a", True) for m in into], {"b": 5} | dict.fromkeys(into, 60))
    assert function_advantages([first, second], 0)[0].tolist() == [0] + [25] * len(into)


def test_callee_is_shared_by_the_calls_that_keep_it():
    # Inlining both calls of b costs 40 bytes each and saves b's 50 once: no single call may claim all of it.
    first = sample(0, [("a", "b"), ("c", "b")], {"a": 100, "c": 100, "b": 50}, {"b"})
    second = sample(0, [("a", "b", True), ("c", "b", True)], {"a": 140, "c": 140}, {"b"})
    one, two = function_advantages([first, second], 0)
    share = 50 / 2 / 2
    assert one == pytest.approx([20 - share] * 2)
    assert two == pytest.approx([share - 20] * 2)


def test_function_known_from_another_sample_is_found_in_the_object():
    # The second sample had no decision about b, for a's call was gone; b is in its object all the same.
    first = sample(300, [("a", "b"), ("c", "a")], {"a": 100, "b": 50, "c": 10}, {"b"})
    second = sample(260, [("c", "a")], {"a": 100, "b": 50, "c": 10}, {"b"})
    assert function_advantages([first, second], 0)[0] == pytest.approx([0, 0])


def test_module_term_is_shared_by_its_decisions():
    first = sample(300, [("a", "b")] * 4, {"a": 1, "b": 1})
    second = sample(200, [("a", "b")], {"a": 1, "b": 1})
    one, two = function_advantages([first, second], module_weight=2)
    assert one == pytest.approx([-50 * 2 / 2] * 4)
    assert two == pytest.approx([50 * 2 / 1])


def test_module_advantages_sum_to_zero():
    samples = [sample(size, [("a", "b")], {}) for size in (100, 160, 130)]
    assert np.concatenate(module_advantages(samples)).tolist() == [30, -30, 0]


def test_recursive_call_counts_once():
    first = sample(0, [("a", "a")], {"a": 100}, {"a"})
    second = sample(0, [("a", "a")], {"a": 140}, {"a"})
    assert function_advantages([first, second], 0)[0] == pytest.approx([20])


def test_callee_that_its_caller_was_inlined_into_is_counted_once():
    # a calls b calls a; the second sample inlined a into b. What a saves and b costs is one sum, for a's call of b too.
    first = sample(0, [("a", "b"), ("b", "a")], {"a": 100, "b": 50}, {"a", "b"})
    second = sample(0, [("a", "b"), ("b", "a", True)], {"b": 120}, {"a", "b"})
    one = function_advantages([first, second], 0)[0]
    both = (100 + 50 - 120) / 2
    assert one == pytest.approx([-both, 35 - 100 / 2])
