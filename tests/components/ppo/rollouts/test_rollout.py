"""Flip sets of a module are divided among slots, and what is measured does not depend on how."""

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
from components.core.formats.corpus import Corpus, Module, load_corpus
from components.core.formats.trace import read_modules, read_object_counts
from components.core.objectives import OBJECTIVES
from components.core.policy.dense import read_dense
from components.platform.errors import UserError
from components.platform.workers import LocalPool
from components.ppo import rollout
from components.ppo.credit.measured_flips import FlipRequest, FlipShare, merge
from components.ppo.learners.replay import Flips
from components.ppo.policy_weights import compiled_policy
from components.ppo.rollout import MeasuredModules, RolloutCollector, choose_shares, end_s

FLIP_COMPILES = 8


def measured(name: str, share: int, shares: int) -> FlipShare:
    """A share of five flip sets. Decision i is in set i % 5, and decisions 3, 6, 9 ... are in the next one, too."""
    rows = [(i, (i + again) % 5) for i in range(40) for again in range(2 if i % 3 == 0 else 1)]
    decision, flip_set = np.array([row for row in rows if row[1] % shares == share], np.int64).reshape(-1, 2).T
    gain = np.random.default_rng(0).normal(size=(40, 5))[decision, flip_set]
    flips = Flips(
        np.stack([decision, -decision], 1).astype(np.float32),
        np.zeros((len(decision), 2), np.float32),
        decision % 2,
        1 - decision % 2,
        gain,
    )
    compiles = 1 + len(range(share, 5, shares))
    alone = np.ones(len(decision), np.int64)
    return FlipShare(name, share, {"": 1000}, flips, decision, flip_set, alone, alone, 3.0 * share, 7.0, 0.5, compiles)


def assert_same(left: Flips, right: Flips) -> None:
    for field in dataclasses.fields(Flips):
        np.testing.assert_array_equal(getattr(left, field.name), getattr(right, field.name))


@pytest.mark.parametrize("shares", [2, 3, 5, 8])
def test_merged_shares_equal_one_request_exactly(shares: int) -> None:
    whole = merge([measured("a", 0, 1)])
    np.testing.assert_array_equal(whole.flips.observed[:, 0], np.arange(40))
    parts = [pickle.loads(pickle.dumps(measured("a", share, shares))) for share in reversed(range(shares))]
    merged = merge(parts)
    assert_same(merged.flips, whole.flips)
    assert merged.error == 3.0 * sum(range(shares)) and merged.attributed == 7.0 * shares
    assert merged.compiles == shares + 5 and merged.compile_s == 0.5 * shares


def test_flips_to_different_actions_are_not_merged() -> None:
    none, decision = np.zeros((3, 2), np.float32), np.array([4, 4, 1])
    flips = Flips(none, none, np.zeros(3, np.int64), np.array([2, 1, 3]), np.array([0.5, 0.25, 0.125]))
    flip_set, alone = np.zeros(3, np.int64), np.ones(3, np.int64)
    merged = merge([FlipShare("a", 0, {}, flips, decision, flip_set, alone, alone, 0.0, 1.0, 0.1, 2)]).flips
    np.testing.assert_array_equal(merged.alternative, [3, 1, 2])
    np.testing.assert_array_equal(merged.gain, [0.125, 0.25, 0.5])


def test_empty_shares_merge_to_no_flips() -> None:
    none = np.zeros(0, np.int64)
    flips = Flips(np.zeros((0, 6), np.float32), np.zeros((0, 2), np.float32), none, none, np.zeros(0))
    merged = merge([FlipShare("a", i, {"": 5}, flips, none, none, none, none, 0.0, 0.0, 0.1, 1) for i in range(2)])
    assert len(merged.flips) == 0 and merged.flips.observed.shape == (0, 6) and merged.compiles == 2


def test_no_module_is_divided_if_slots_are_few() -> None:
    compile_s = np.random.default_rng(0).lognormal(sigma=1.2, size=16).tolist()
    assert choose_shares(compile_s, FLIP_COMPILES, 2) == [1] * 16


def test_dominating_module_is_divided() -> None:
    assert choose_shares([1.0, 0.01, 0.01], FLIP_COMPILES, 2) == [2, 1, 1]
    assert choose_shares([1.0], FLIP_COMPILES, 512) == [FLIP_COMPILES]
    assert choose_shares([1.0], 1, 512) == [1]
    assert choose_shares([], FLIP_COMPILES, 2) == []


@pytest.mark.parametrize("slots", [1, 8, 64, 512])
def test_division_keeps_slots_busy(slots: int) -> None:
    compile_s = np.random.default_rng(1).lognormal(-2.5, 1.4, 2000)
    shares = choose_shares(compile_s.tolist(), FLIP_COMPILES, slots)
    work_s = 9 * compile_s.sum() / slots
    request_s = [
        seconds * (1 + len(range(share, FLIP_COMPILES, count)))
        for seconds, count in zip(compile_s.tolist(), shares, strict=True)
        for share in range(count)
    ]
    assert end_s(request_s, slots) <= 1.2 * max(work_s, 2 * compile_s.max())
    assert sum(request_s) <= 1.2 * work_s * slots
    assert slots > 1 or shares == [1] * 2000


class FakeMeasureModule:
    """Replaces MeasureModule: share 1 of a module called "broken" fails, share 1 of a module called "slow" waits."""

    compiled: list[tuple[str, int]]
    release: threading.Event

    def __init__(self, *_: object) -> None:
        pass

    def __call__(self, request: FlipRequest) -> FlipShare:
        self.compiled.append((request.module.name, request.share))
        if request.module.name == "broken" and request.share == 1:
            raise CompileError("broken", "failed", "status 1")
        if request.module.name == "slow" and request.share == 1:
            self.release.wait(60)
        return measured(request.module.name, request.share, request.shares)


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., MeasuredModules]]:
    """A measurement of modules by name, each in three shares, with `FakeMeasureModule`."""
    give_up = LocalPool._cancel

    def release_and_give_up(pool: LocalPool, futures: Any) -> None:
        FakeMeasureModule.release.set()
        give_up(pool, futures)

    FakeMeasureModule.compiled, FakeMeasureModule.release = [], threading.Event()
    monkeypatch.setattr(rollout, "MeasureModule", FakeMeasureModule)
    monkeypatch.setattr(rollout, "choose_shares", lambda compile_s, *_: [3] * len(compile_s))
    monkeypatch.setattr(LocalPool, "_cancel", release_and_give_up)
    dense = SimpleNamespace(features=(), buckets={})
    with LocalPool(4) as pool:

        def run(names: list[str], quarantine: Quarantine, fraction: float = 1.0) -> MeasuredModules:
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


def test_module_with_a_failing_share_is_quarantined(measure) -> None:
    quarantine = Quarantine(1.0)
    found = measure(["a", "broken", "b"], quarantine)
    assert found.modules == ("a", "b") and found.compiles == (8, 8)
    assert found.rewards.tolist() == [0.5, 0.5]
    assert [error.module for error in quarantine.errors] == ["broken"]
    assert sorted(FakeMeasureModule.compiled).count(("broken", 1)) == 2
    assert sorted(FakeMeasureModule.compiled).count(("broken", 0)) == 1
    with pytest.raises(UserError, match="1 of 3 modules do not compile"):
        measure(["a", "broken", "b"], Quarantine(0.1))


def test_min_completed_fraction_counts_whole_modules(measure, capsys) -> None:
    found = measure(["slow", "a", "b", "c"], Quarantine(1.0), 0.75)
    assert found.modules == ("a", "b", "c")
    assert "iteration ended with 3 of 4 modules; cancelled: slow" in capsys.readouterr().out


@pytest.mark.tf
@pytest.mark.parametrize("shares", [2, 3, 7])
def test_measured_flips_do_not_depend_on_shares(artifacts, monkeypatch, shares: int) -> None:
    given = dict(zip(artifacts[::2], artifacts[1::2], strict=True))
    corpus: Corpus = load_corpus(given["--corpus"])
    dense = read_dense(given["--warmstart"])
    clang = Path(given["--toolchain"]) / "bin" / "clang"
    table = read_modules(given["--trace"])
    compile_s = dict(zip(table["module"].tolist(), table["compile_s"].tolist(), strict=True))
    problem = problems.get("inlining")
    baselines = OBJECTIVES[problem.objective].baselines(given["--trace"])
    found = []
    with LocalPool(2) as pool, compiled_policy(dense, clang) as policy:
        collector = RolloutCollector(Compiler(clang, "inlining"), pool, problem, baselines, compile_s, True, 1.0)
        for count in (1, shares):
            monkeypatch.setattr(rollout, "choose_shares", lambda compile_s, *_, n=count: [n] * len(compile_s))
            found.append(collector.measure(corpus.modules, policy, dense, 5, 3, Quarantine(0.0)))
    whole, divided = found
    assert sum(map(len, whole.flips)) > 20
    assert divided.modules == whole.modules and divided.error_percent == whole.error_percent
    np.testing.assert_array_equal(divided.rewards, whole.rewards)
    for left, right in zip(divided.flips, whole.flips, strict=True):
        assert_same(left, right)
    assert [n - shares for n in divided.compiles] == [n - 1 for n in whole.compiles]


@pytest.mark.tf
def test_validation_counts_the_bytes_that_the_link_keeps(artifacts) -> None:
    given = dict(zip(artifacts[::2], artifacts[1::2], strict=True))
    modules = load_corpus(given["--corpus"]).modules[:2]
    dense = read_dense(given["--warmstart"])
    compiler = Compiler(Path(given["--toolchain"]) / "bin" / "clang", "inlining")
    objects = read_object_counts(given["--trace"])
    assert objects["app"], "the modules share functions of the standard library"
    with LocalPool(2) as pool, compiled_policy(dense, compiler.clang) as policy:
        collector = RolloutCollector(compiler, pool, problems.get("inlining"), {}, {}, True, 1.0, objects=objects)
        for decided_by, advisor in ((policy, Advisor("policy", policy=policy)), (None, Advisor("default"))):
            whole, linked = (collector.greedy(modules, decided_by, Quarantine(0.0), only) for only in (False, True))
            for module in modules:
                (sample,) = compiler(Request(module, advisor, want_functions=True)).samples
                shared = sum(
                    size - size / objects["app"][name]
                    for name, size in sample.function_sizes.by_name().items()
                    if name in objects["app"]
                )
                assert shared > 0 and whole[module.name] == {"": sample.text_size_bytes}
                assert linked[module.name] == {"": pytest.approx(sample.text_size_bytes - shared)}
