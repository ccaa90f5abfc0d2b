"""Exact credit for register allocation, against scores made by hand; toolchain/test_regalloc.py has compiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from components.core import problems
from components.core.compiler.compile import CompileError
from components.core.compiler.forced_decisions import ForcedDecisions
from components.core.compiler.logs.training_log import Context, TrainingLog
from components.core.compiler.sample import Sample
from components.core.counterfactual.regalloc import Flips, choose_flips, measure_flips

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


def tried(flips: Flips) -> list[tuple[str, int, int]]:
    names = [flips.names[i] for i in flips.function.tolist()]
    return list(zip(names, flips.ordinal.tolist(), flips.action.tolist(), strict=True))


def test_small_functions_are_exhausted_and_large_ones_sampled() -> None:
    small = function("small", [[3, 4], [5], [0, 7, 32]], [3, 5, 32])
    flips = choose_flips("m", TrainingLog((), (large(), small)), 8, seed=0)
    assert sorted(t for t in tried(flips) if t[0] == "small") == [("small", 0, 4), ("small", 2, 0), ("small", 2, 7)]
    of_large = [t for t in tried(flips) if t[0] == "large"]
    assert len(of_large) == len(set(of_large)) == 8
    assert all(action in (0, 2, 32) for _, _, action in of_large)
    first_row = {"large": 0, "small": 40}
    assert flips.row.tolist() == [first_row[name] + ordinal for name, ordinal, _ in tried(flips)]


def named(decisions: ForcedDecisions) -> list[tuple[str, int, int]]:
    assert (decisions.rows[:, 1] == -1).all()
    return [(decisions.names[name], ordinal, action) for name, _, ordinal, action in decisions.rows.tolist()]


def test_flips_are_grouped_by_compile() -> None:
    log = TrainingLog((), (function("a", [[0, 1], [0, 1]], [0, 1]), function("b", [[2, 3]], [3])))
    flips = choose_flips("m", log, 3, seed=0)
    assert named(flips.decisions()) == tried(flips)
    several = [named(forced) for forced in flips.compiles()]
    assert sorted(flip for flips in several for flip in flips) == sorted(tried(flips))
    assert [[name for name, _, _ in flips] for flips in several] == [["a", "b"], ["a"]]
    samples = [Sample(scores={"a": 1.0, "b": 2.0}), Sample(scores={"a": 3.0, "b": 9.0})]
    assert flips.scores(samples).tolist() == [1.0, 3.0, 2.0]


def test_likely_alternatives_and_uncertain_decisions_are_preferred() -> None:
    # Decision 7 is a coin toss between 1 and 2; all others are sure.
    logits = [{1: 9.0, 2: 8.9} if i == 7 else {1: 9.0} for i in range(40)]
    chosen = [tried(choose_flips("m", TrainingLog((), (large(logits=logits),)), 4, seed)) for seed in range(50)]
    assert sum(("large", 7, 2) in flips for flips in chosen) > 35
    assert len({flip for flips in chosen for flip in flips}) > 60  # and yet all may be tried


def test_seed_determines_the_flips() -> None:
    log = TrainingLog((), (large(), large("other")))
    assert tried(choose_flips("m", log, 8, seed=3)) == tried(choose_flips("m", log, 8, seed=3))
    assert tried(choose_flips("m", log, 8, seed=3)) != tried(choose_flips("m", log, 8, seed=4))


def test_worth_is_the_change_of_log_score() -> None:
    log = TrainingLog((), (function("a", [[0, 1]], [0]), function("b", [[2, 3, 4]], [3])))
    flips = choose_flips("m", log, 2, seed=0)
    base = Sample(scores={"a": 9.0, "b": 99.0})
    measured = measure_flips(flips, base, np.array([4.0, 199.0, 49.0], np.float32))
    assert measured.row.tolist() == [0, 1, 1] and measured.action.tolist()[0] == 1
    assert measured.worth == pytest.approx([np.log(2), -np.log(2), np.log(2)])


def test_compile_of_another_base_is_refused() -> None:
    flips = choose_flips("m", TrainingLog((), (function("a", [[0, 1]], [0]),)), 1, seed=0)
    for scores in (np.array([np.nan], np.float32), flips.scores([Sample(scores={})])):
        with pytest.raises(CompileError, match="m: log: flips in a did not occur"):
            measure_flips(flips, Sample(scores={"a": 9.0}), scores)


def test_module_without_decisions_has_no_flips() -> None:
    for log in (TrainingLog((), ()), TrainingLog((), (function("a", [[3]], [3]),))):
        flips = choose_flips("m", log, 4, seed=0)
        assert len(flips) == len(flips.decisions()) == 0 and flips.compiles() == ()
        assert len(measure_flips(flips, Sample(scores={"a": 1.0}), flips.scores([]))) == 0
