"""Flip sets of a module are divided among jobs, and what is measured does not depend on how."""

from __future__ import annotations

import dataclasses
import pickle
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from components.core import problems
from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import CompileError, Compiler, Request
from components.core.compiler.quarantine import Quarantine
from components.core.counterfactual.flips import FlipSavings
from components.core.formats.corpus import Corpus, Module, load_corpus
from components.core.formats.trace import read_modules, read_object_counts
from components.core.objectives import OBJECTIVES
from components.core.policy.dense import read_dense
from components.platform.errors import UserError
from components.platform.workers import LocalPool
from components.ppo import rollout
from components.ppo.credit.measured_flips import FlipJob, FlipResult, attribution_error_percent, merge
from components.ppo.learners.replay import ReplayRows
from components.ppo.policy_weights import compiled_policy
from components.ppo.rollout import RolloutCollector, divide_modules, estimate_makespan_s

FLIP_COMPILES = 8


def flip_result(
    decision: np.ndarray,
    saved: np.ndarray,
    *,
    name: str = "a",
    part: int = 0,
    flip_set: np.ndarray | None = None,
    alternative: np.ndarray | None = None,
    error: float = 0.0,
    compiles: int = 2,
) -> FlipResult:
    """The result of flips that were measured alone; the observation of a decision is its number."""
    action = decision % 2
    none, alone = np.zeros_like(decision), np.ones_like(decision)
    alternative = 1 - action if alternative is None else alternative
    savings = FlipSavings(
        flip=none,
        flip_set=none if flip_set is None else flip_set,
        decision=decision,
        alternative=alternative,
        together=alone,
        group_size=alone,
        saved=saved,
        error=error,
        attributed=7.0,
    )
    observed = np.stack([decision, -decision], 1).astype(np.float32)
    rows = ReplayRows(observed, np.zeros((len(decision), 2), np.float32), action, alternative, saved)
    return FlipResult(name, part, {"": 1000}, savings, rows, compiles)


def measure_part(name: str, part: int, parts: int) -> FlipResult:
    """A part of five flip sets. Decision i is in set i % 5, and decisions 3, 6, 9 ... are in the next one, too."""
    rows = [(i, (i + again) % 5) for i in range(40) for again in range(2 if i % 3 == 0 else 1)]
    decision, flip_set = np.array([row for row in rows if row[1] % parts == part], np.int64).reshape(-1, 2).T
    saved = np.random.default_rng(0).normal(size=(40, 5))[decision, flip_set]
    compiles = 1 + len(range(part, 5, parts))
    return flip_result(decision, saved, name=name, part=part, flip_set=flip_set, error=3.0 * part, compiles=compiles)


def assert_same(left: ReplayRows, right: ReplayRows) -> None:
    for field in dataclasses.fields(ReplayRows):
        np.testing.assert_array_equal(getattr(left, field.name), getattr(right, field.name))


@pytest.mark.parametrize("parts", [2, 3, 5, 8])
def test_merged_parts_equal_one_job_exactly(parts: int) -> None:
    whole = merge([measure_part("a", 0, 1)])
    np.testing.assert_array_equal(whole.rows.observed[:, 0], np.arange(40))
    results = [pickle.loads(pickle.dumps(measure_part("a", part, parts))) for part in reversed(range(parts))]
    merged = merge(results)
    assert_same(merged.rows, whole.rows)
    np.testing.assert_array_equal(merged.savings.saved, merged.rows.gain)
    assert merged.savings.error == 3.0 * sum(range(parts)) and merged.savings.attributed == 7.0 * parts
    assert attribution_error_percent([merged]) == 100 * 3.0 * sum(range(parts)) / (7.0 * parts)
    assert merged.compiles == parts + 5


def test_flips_to_different_actions_are_not_merged() -> None:
    saved, alternative = np.array([0.5, 0.25, 0.125]), np.array([2, 1, 3])
    merged = merge([flip_result(np.array([4, 4, 1]), saved, alternative=alternative)])
    np.testing.assert_array_equal(merged.rows.alternative, [3, 1, 2])
    np.testing.assert_array_equal(merged.rows.gain, [0.125, 0.25, 0.5])


def test_parts_without_flips_merge_to_no_flips() -> None:
    none = np.zeros(0, np.int64)
    merged = merge([flip_result(none, np.zeros(0), part=part, compiles=1) for part in range(2)])
    assert len(merged.rows) == 0 and merged.rows.observed.shape == (0, 2) and merged.compiles == 2


def test_no_module_is_divided_if_slots_are_few() -> None:
    compile_s = np.random.default_rng(0).lognormal(sigma=1.2, size=16).tolist()
    assert divide_modules(compile_s, FLIP_COMPILES, 2) == [1] * 16


def test_dominating_module_is_divided() -> None:
    assert divide_modules([1.0, 0.01, 0.01], FLIP_COMPILES, 2) == [2, 1, 1]
    assert divide_modules([1.0], FLIP_COMPILES, 512) == [FLIP_COMPILES]
    assert divide_modules([1.0], 1, 512) == [1]
    assert divide_modules([], FLIP_COMPILES, 2) == []


@pytest.mark.parametrize("slots", [1, 8, 64, 512])
def test_division_keeps_slots_busy(slots: int) -> None:
    compile_s = np.random.default_rng(1).lognormal(-2.5, 1.4, 2000)
    divided = divide_modules(compile_s.tolist(), FLIP_COMPILES, slots)
    work_s = 9 * compile_s.sum() / slots
    job_s = [
        seconds * (1 + len(range(part, FLIP_COMPILES, parts)))
        for seconds, parts in zip(compile_s.tolist(), divided, strict=True)
        for part in range(parts)
    ]
    assert estimate_makespan_s(job_s, slots) <= 1.2 * max(work_s, 2 * compile_s.max())
    assert sum(job_s) <= 1.2 * work_s * slots
    assert slots > 1 or divided == [1] * 2000


class FakeMeasureModule:
    """Replaces MeasureModule: part 1 of a module called "broken" fails, part 1 of a module called "slow" waits."""

    compiled: list[tuple[str, int]]
    release: threading.Event

    def __init__(self, *_: object) -> None:
        pass

    def __call__(self, job: FlipJob) -> FlipResult:
        self.compiled.append((job.module.name, job.part))
        if job.module.name == "broken" and job.part == 1:
            raise CompileError("broken", "failed", "status 1")
        if job.module.name == "slow" and job.part == 1:
            self.release.wait(60)
        return measure_part(job.module.name, job.part, job.parts)


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., list[FlipResult]]]:
    """A measurement of modules by name, each in three parts, with `FakeMeasureModule`."""
    give_up = LocalPool._cancel

    def release_and_give_up(pool: LocalPool, futures: Any) -> None:
        FakeMeasureModule.release.set()
        give_up(pool, futures)

    FakeMeasureModule.compiled, FakeMeasureModule.release = [], threading.Event()
    monkeypatch.setattr(rollout, "MeasureModule", FakeMeasureModule)
    monkeypatch.setattr(rollout, "divide_modules", lambda compile_s, *_: [3] * len(compile_s))
    monkeypatch.setattr(LocalPool, "_cancel", release_and_give_up)
    dense = SimpleNamespace(features=(), buckets={})
    with LocalPool(4) as pool:

        def run(names: list[str], quarantine: Quarantine, fraction: float = 1.0) -> list[FlipResult]:
            collector = RolloutCollector(
                Compiler(Path("clang"), "inlining"),
                pool,
                problems.get("inlining"),
                {name: {"": 2000} for name in names},
                dict.fromkeys(names, 0.1),
                True,
                1.0,
                fraction,
            )
            modules = [Module(name, Path()) for name in names]
            return collector.measure(modules, tmp_path, dense, FLIP_COMPILES, 0, quarantine)  # type: ignore[arg-type]

        yield run


def test_module_with_a_failing_part_is_quarantined(measure) -> None:
    quarantine = Quarantine(1.0)
    results = measure(["a", "broken", "b"], quarantine)
    assert [(result.module_name, result.compiles) for result in results] == [("a", 8), ("b", 8)]
    assert [error.module for error in quarantine.errors] == ["broken"]
    assert sorted(FakeMeasureModule.compiled).count(("broken", 1)) == 2
    assert sorted(FakeMeasureModule.compiled).count(("broken", 0)) == 1
    with pytest.raises(UserError, match="1 of 3 modules do not compile"):
        measure(["a", "broken", "b"], Quarantine(0.1))


def test_min_completed_fraction_counts_whole_modules(measure, capsys) -> None:
    results = measure(["slow", "a", "b", "c"], Quarantine(1.0), 0.75)
    assert [result.module_name for result in results] == ["a", "b", "c"]
    assert (
        "iteration ended with 3 of 4 modules; cancelled: slow (2000 bytes, 0.1 s in the trace)"
        in capsys.readouterr().out
    )


@pytest.mark.tf
def test_measured_flips_do_not_depend_on_parts(artifacts, monkeypatch) -> None:
    parts = 3
    corpus: Corpus = load_corpus(artifacts["corpus"])
    dense = read_dense(artifacts["warmstart"])
    clang = Path(artifacts["toolchain"]) / "bin" / "clang"
    table = read_modules(artifacts["trace"])
    compile_s = dict(zip(table["module"].tolist(), table["compile_s"].tolist(), strict=True))
    problem = problems.get("inlining")
    baselines = OBJECTIVES[problem.objective].baselines(artifacts["trace"])
    measured = []
    with LocalPool(2) as pool, compiled_policy(dense, clang) as policy:
        collector = RolloutCollector(Compiler(clang, "inlining"), pool, problem, baselines, compile_s, True, 1.0)
        for count in (1, parts):
            monkeypatch.setattr(rollout, "divide_modules", lambda compile_s, *_, n=count: [n] * len(compile_s))
            measured.append(collector.measure(corpus.modules, policy, dense, 5, 3, Quarantine(0.0)))
    whole, divided = measured
    assert sum(len(result.rows) for result in whole) > 20
    assert attribution_error_percent(divided) == attribution_error_percent(whole)
    for left, right in zip(divided, whole, strict=True):
        assert (left.module_name, left.outcome) == (right.module_name, right.outcome)
        assert_same(left.rows, right.rows)
        assert left.compiles - parts == right.compiles - 1


@pytest.mark.tf
def test_validation_counts_the_bytes_that_the_link_keeps(artifacts) -> None:
    modules = load_corpus(artifacts["corpus"]).modules[:2]
    dense = read_dense(artifacts["warmstart"])
    compiler = Compiler(Path(artifacts["toolchain"]) / "bin" / "clang", "inlining")
    counts = read_object_counts(artifacts["trace"])
    assert counts["app"], "the modules share functions of the standard library"
    with LocalPool(2) as pool, compiled_policy(dense, compiler.clang) as policy:
        collector = RolloutCollector(
            compiler, pool, problems.get("inlining"), {}, {}, True, 1.0, definition_counts=counts
        )
        for decided_by, advisor in ((policy, Advisor("policy", policy=policy)), (None, Advisor("default"))):
            whole, linked = (collector.greedy(modules, decided_by, Quarantine(0.0), only) for only in (False, True))
            for module in modules:
                (sample,) = compiler(Request(module, advisor, want_functions=True)).samples
                shared = sum(
                    size - size / counts["app"][name]
                    for name, size in sample.function_sizes.by_name().items()
                    if name in counts["app"]
                )
                assert shared > 0 and whole[module.name] == {"": sample.text_size_bytes}
                assert linked[module.name] == {"": pytest.approx(sample.text_size_bytes - shared)}
