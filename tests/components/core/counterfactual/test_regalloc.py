"""Exact credit for register allocation, against scores made by hand; toolchain/test_regalloc.py has compiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from components.core import problems
from components.core.compiler.compile import CompileError
from components.core.compiler.logs.training_log import Context, TrainingLog
from components.core.compiler.sample import Sample
from components.core.counterfactual.flips import FlipPlan
from components.core.counterfactual.regalloc import attribute_savings, plan_flips

PROBLEM = problems.get("regalloc")


def function(
    name: str, allowed: list[list[int]], taken: list[int], logits: list[dict[int, float]] | None = None
) -> Context:
    """allowed: by decision, the actions of the mask; logits: by decision, those that are not 0."""
    mask = np.zeros((len(taken), 1, 33), np.int64)
    for row, actions in zip(mask, allowed, strict=True):
        row[0, actions] = 1
    columns: dict[str, NDArray[Any]] = {"mask": mask, PROBLEM.policy.decision: np.array(taken, np.int64)[:, None]}
    if logits is not None:
        logged = np.where(mask != 0, 0.0, -np.inf).astype(np.float32)
        for row, some in zip(logged, logits, strict=True):
            for action, logit in some.items():
                row[0, action] = logit
        columns[PROBLEM.policy.logits] = logged
    return Context(name, columns, None)


def large(name: str = "large", decisions: int = 40, **logits: list[dict[int, float]]) -> Context:
    return function(name, [[0, 1, 2, 32]] * decisions, [1] * decisions, **logits)


def planned(plan: FlipPlan) -> list[tuple[str, int, int]]:
    """The function, ordinal and action of each flip."""
    return [
        (forced.names[name], ordinal, action)
        for forced in plan.forced
        for name, callee, ordinal, action in forced.rows.tolist()
        if callee == -1
    ]


def test_small_functions_are_exhausted_and_large_ones_sampled() -> None:
    small = function("small", [[3, 4], [5], [0, 7, 32]], [3, 5, 32])
    plan = plan_flips("m", TrainingLog((), (large(), small)), 8, seed=0)
    assert sorted(t for t in planned(plan) if t[0] == "small") == [("small", 0, 4), ("small", 2, 0), ("small", 2, 7)]
    of_large = [t for t in planned(plan) if t[0] == "large"]
    assert len(of_large) == len(set(of_large)) == 8
    assert all(action in (0, 2, 32) for _, _, action in of_large)
    first_row = {"large": 0, "small": 40}
    rows = [first_row[name] + ordinal for name, ordinal, _ in planned(plan)]
    assert [flip.decisions.tolist() for flip in plan.flips] == [[row] for row in rows]
    assert [flip.alternative for flip in plan.flips] == [action for _, _, action in planned(plan)]


def test_one_compile_forks_at_all_flips() -> None:
    unflippable = function("c", [[3]], [3])
    log = TrainingLog((), (function("a", [[0, 1], [0, 1]], [0, 1]), unflippable, function("b", [[2, 3]], [3])))
    plan = plan_flips("m", log, 3, seed=0)
    assert sorted(planned(plan)) == [("a", 0, 1), ("a", 1, 0), ("b", 0, 2)]
    assert [flip_set.tolist() for flip_set in plan.flip_sets] == [[0, 1, 2]] and plan.forced[0].names == ("a", "b")
    assert [flip.changes for flip in plan.flips] == [{0}, {0}, {2}]


def test_likely_alternatives_and_uncertain_decisions_are_preferred() -> None:
    # Decision 7 is a coin toss between 1 and 2; all others are sure.
    logits = [{1: 9.0, 2: 8.9} if i == 7 else {1: 9.0} for i in range(40)]
    chosen = [planned(plan_flips("m", TrainingLog((), (large(logits=logits),)), 4, seed)) for seed in range(50)]
    assert sum(("large", 7, 2) in flips for flips in chosen) > 35
    assert len({flip for flips in chosen for flip in flips}) > 60  # and yet all may be tried


def test_seed_determines_the_flips() -> None:
    log = TrainingLog((), (large(), large("other")))
    assert planned(plan_flips("m", log, 8, seed=3)) == planned(plan_flips("m", log, 8, seed=3))
    assert planned(plan_flips("m", log, 8, seed=3)) != planned(plan_flips("m", log, 8, seed=4))


def test_saving_is_the_change_of_log_score() -> None:
    log = TrainingLog((), (function("a", [[0, 1]], [0]), function("b", [[2, 3, 4]], [3])))
    plan = plan_flips("m", log, 2, seed=0)
    base = Sample(log=log, scores={"a": 9.0, "b": 99.0})
    savings = attribute_savings("m", base, plan, np.array([4.0, 199.0, 49.0], np.float32))
    assert savings.decision.tolist() == [0, 1, 1] and savings.alternative.tolist()[0] == 1
    assert savings.saved == pytest.approx([np.log(2), -np.log(2), np.log(2)])


def test_compile_of_another_base_is_refused() -> None:
    log = TrainingLog((), (function("a", [[0, 1]], [0]),))
    plan = plan_flips("m", log, 1, seed=0)
    with pytest.raises(CompileError, match="flips in a"):
        attribute_savings("m", Sample(log=log, scores={"a": 9.0}), plan, np.array([np.nan], np.float32))


def test_module_without_alternatives_has_no_compiles() -> None:
    for log in (TrainingLog((), ()), TrainingLog((), (function("a", [[3]], [3]),))):
        plan = plan_flips("m", log, 4, seed=0)
        assert plan.flips == plan.flip_sets == plan.forced == ()
