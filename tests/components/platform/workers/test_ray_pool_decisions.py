"""What the pool does about workers that die or cannot be used, on a cluster of threads: no Ray process is started."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from components.core.compiler.compile import CompileError
from components.core.compiler.quarantine import Quarantine, compile_all
from components.platform.errors import UserError
from components.platform.storage.object_storage.object_store import StorageError
from components.platform.workers import ray_pool
from components.platform.workers.pool import WorkersDied
from components.platform.workers.ray_pool import RayPool
from components.platform.workers.source_digest import source_digest

pytest.importorskip("ray")
from ray.exceptions import ActorDiedError, ActorUnavailableError

SLOTS = 4


@dataclass
class FakeCluster:
    """A Cluster whose actors answer at once.

    Attributes:
        cpus: node -> processors.
        before: is called with node and function result of each item before it is processed; an exception is the
            actor's death.
        prepared: node -> answers of its actors to `prepare`; None when there is none left.
        sources: node -> what its actors' code is, unless it is the trainer's.
    """

    cpus: dict[str, int]
    before: Callable[[str, Any], None] = lambda _node, _item: None
    prepared: dict[str, list[Exception]] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    started: list[str] = field(default_factory=list)

    def nodes(self) -> dict[str, int]:
        return dict(self.cpus)

    def start_worker(self, node: str, slots: int) -> Any:
        self.started.append(node)
        return FakeActor(self, node)

    def put(self, value: Any) -> Any:
        return value

    def wait(self, references: Sequence[Any], timeout_s: float) -> None: ...

    def request_cpus(self, cpus: int) -> None: ...

    def update_request(self) -> None: ...

    def kill(self, handle: Any) -> None: ...

    def description(self) -> str:
        return "the cluster of this test"

    def close(self) -> None: ...


class FakeActor:
    """An actor's handle, with `actor.method.remote(...)` like Ray's."""

    def __init__(self, cluster: FakeCluster, node: str) -> None:
        self._cluster, self._node = cluster, node
        self._function: Callable[[Any], Any] = str
        for name in ("ping", "prepare", "exchange", "cancel", "shutdown"):
            setattr(self, name, SimpleNamespace(remote=self._remote(getattr(self, f"_{name}"))))

    def _remote(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def remote(*arguments: Any) -> Any:
            future: Future[Any] = Future()

            def run() -> None:
                try:
                    future.set_result(call(*arguments))
                except Exception as error:
                    future.set_exception(error)

            threading.Thread(target=run).start()
            return SimpleNamespace(future=lambda: future)

        return remote

    def _ping(self) -> tuple[str, str]:
        return f"host-of-{self._node}", self._cluster.sources.get(self._node, source_digest())

    def _prepare(self, _number: int, function: bytes, _shared: object) -> Exception | None:
        self._function = pickle.loads(function)
        answers = self._cluster.prepared.get(self._node)
        return answers.pop(0) if answers else None

    def _exchange(self, _number: int, items: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        loaded = [(key, pickle.loads(item)) for key, item in items]
        for _key, item in loaded:
            self._cluster.before(self._node, item)
        return [(key, pickle.dumps((True, self._function(item)))) for key, item in loaded]

    def _cancel(self, _number: int) -> None: ...

    def _shutdown(self) -> None: ...


@pytest.fixture
def make_pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[FakeCluster], RayPool]]:
    pools: list[RayPool] = []

    def make(cluster: FakeCluster) -> RayPool:
        monkeypatch.setattr(ray_pool, "connect", lambda _address, _slots: cluster)
        monkeypatch.setattr(ray_pool, "_NODES_REFRESH_S", 0.02)
        pools.append(RayPool("auto", slots_per_worker=SLOTS))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def kills(name: str) -> Callable[[str, Any], None]:
    """Of an item of which each worker dies."""

    def before(_node: str, item: Any) -> None:
        if name in str(item):
            raise ActorDiedError

    return before


def module_name(request: Any) -> str:
    return str(request.module.name)


def requests(names: Sequence[str]) -> list[Any]:
    return [SimpleNamespace(module=SimpleNamespace(name=name), advisor=SimpleNamespace(policy=None)) for name in names]


NAMES = [*(f"m{number}" for number in range(20)), "bad", *(f"n{number}" for number in range(20))]


def test_module_that_kills_workers_is_quarantined(make_pool: Callable[[FakeCluster], RayPool]) -> None:
    pool = make_pool(FakeCluster({"n1": SLOTS, "n2": SLOTS}, kills("bad")))
    quarantine = Quarantine(0.5, len(NAMES))
    done = sorted(result for _, result in compile_all(pool, module_name, requests(NAMES), quarantine))
    assert done == sorted(set(NAMES) - {"bad"})
    (error,) = quarantine.errors
    assert (error.module, error.reason) == ("bad", "died") and "workers died" in error.detail
    restored = Quarantine.from_json(quarantine.to_json())
    assert len(list(compile_all(pool, module_name, requests(NAMES), restored))) == len(NAMES) - 1


def test_too_many_modules_that_kill_workers_end_the_step(make_pool: Callable[[FakeCluster], RayPool]) -> None:
    pool = make_pool(FakeCluster({"n1": SLOTS}, kills("m")))
    with pytest.raises(UserError, match=r"\(\d+ died\)") as caught:
        list(compile_all(pool, module_name, requests([f"m{number}" for number in range(4)]), Quarantine(0.3, 4)))
    assert "more memory" in caught.value.remedy and isinstance(caught.value.__context__, (type(None), CompileError))


def test_deaths_of_nodes_are_not_counted_against_items(make_pool: Callable[[FakeCluster], RayPool]) -> None:
    """Six nodes are lost while they process the same item; Ray reports its actor's death before that of the node."""
    cluster = FakeCluster({"spot": SLOTS})
    lost: list[str] = []

    def before(node: str, item: Any) -> None:
        if lost and lost[-1] in cluster.cpus and node != lost[-1]:
            cluster.cpus.pop(lost[-1])
        if item == 3 and len(lost) < 6:
            lost.append(node)
            cluster.cpus[f"spot{len(lost)}"] = SLOTS
            raise ActorDiedError

    cluster.before = before
    pool = make_pool(cluster)
    assert sorted(pool.map_unordered(abs, range(30))) == [(n, n) for n in range(30)]
    assert len(lost) == 6 and pool.lost >= 6


@pytest.mark.parametrize("error", [ActorUnavailableError("gone", None), "preempted"])
def test_unreachable_and_preempted_workers_say_nothing_about_items(
    make_pool: Callable[[FakeCluster], RayPool], error: Exception | str
) -> None:
    failures = 8

    def before(_node: str, item: Any) -> None:
        nonlocal failures
        if item == 3 and failures:
            failures -= 1
            if isinstance(error, Exception):
                raise error
            died = ActorDiedError()
            died._preempted = True
            raise died

    pool = make_pool(FakeCluster({"n1": SLOTS}, before))
    assert sorted(pool.map_unordered(abs, range(6))) == [(n, n) for n in range(6)]
    assert not failures


def test_item_that_takes_nodes_with_it_is_given_up(make_pool: Callable[[FakeCluster], RayPool]) -> None:
    cluster = FakeCluster({"n0": SLOTS, "other": 1})

    def before(node: str, item: Any) -> None:
        if item == 3:
            cluster.cpus.pop(node, None)
            cluster.cpus[f"n{len(cluster.started)}"] = SLOTS
            raise ActorDiedError

    cluster.before = before
    outcomes = dict(make_pool(cluster).map_unordered(abs, range(8)))
    assert isinstance(outcomes.pop(3), WorkersDied) and outcomes == {n: n for n in range(8) if n != 3}


def test_worker_that_cannot_prepare_is_left_out(
    make_pool: Callable[[FakeCluster], RayPool], capsys: pytest.CaptureFixture[str]
) -> None:
    failure = UserError("on the worker host2: s3://b/toolchain: the disk is full", "free some space")
    cluster = FakeCluster({"n1": SLOTS, "n2": SLOTS}, prepared={"n2": [failure]})
    pool = make_pool(cluster)
    for _ in range(2):
        assert sorted(pool.map_unordered(abs, range(50))) == [(n, n) for n in range(50)]
    assert pool.size == SLOTS and cluster.started.count("n2") == 1
    said = capsys.readouterr().out
    assert "worker host2" in said


def test_node_is_tried_again_after_a_pause(
    make_pool: Callable[[FakeCluster], RayPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_pool, "_EXCLUDED_S", 0.05)
    cluster = FakeCluster({"n1": 1, "n2": SLOTS}, prepared={"n2": [RuntimeError("first"), OSError("second")]})
    pool = make_pool(cluster)
    while cluster.started.count("n2") < 3 or pool.size < 1 + SLOTS:
        assert len(list(pool.map_unordered(abs, range(9)))) == 9


def test_error_if_no_worker_can_prepare(make_pool: Callable[[FakeCluster], RayPool]) -> None:
    failures: dict[str, list[Exception]] = {
        f"n{n}": [UserError(f"on the worker n{n}: no toolchain", "make it")] for n in (1, 2)
    }
    pool = make_pool(FakeCluster({"n1": SLOTS, "n2": SLOTS}, prepared=failures))
    with pytest.raises(UserError, match=r"n\d") as caught:
        list(pool.map_unordered(abs, range(9)))
    assert caught.value.remedy == "make it"


def test_storage_that_answered_before_is_waited_for(
    make_pool: Callable[[FakeCluster], RayPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_pool, "_EXCLUDED_S", 0.05)
    cluster = FakeCluster({"n1": SLOTS})
    pool = make_pool(cluster)
    assert list(pool.map_unordered(abs, [-1])) == [(0, 1)]
    cluster.prepared["n1"] = [StorageError("s3://b does not answer") for _ in range(4)]
    assert list(pool.map_unordered(abs, [-2])) == [(0, 2)]
    assert cluster.started.count("n1") == 5
    monkeypatch.setattr(ray_pool, "STORAGE_PATIENCE_S", 0.1)
    cluster.prepared["n1"] = [StorageError("s3://b does not answer") for _ in range(40)]
    with pytest.raises(UserError, match="not answer"):
        list(pool.map_unordered(abs, [-3]))


def test_workers_with_other_sources_are_refused(
    make_pool: Callable[[FakeCluster], RayPool], capsys: pytest.CaptureFixture[str]
) -> None:
    pool = make_pool(FakeCluster({"n1": SLOTS, "n2": SLOTS}, sources={"n2": "0123"}))
    assert sorted(pool.map_unordered(abs, range(50))) == [(n, n) for n in range(50)]
    assert pool.size == SLOTS
    assert "host-of-n2" in capsys.readouterr().out
    pool = make_pool(FakeCluster({"n1": SLOTS}, sources={"n1": "0123"}))
    with pytest.raises(UserError, match="trainer's") as caught:
        list(pool.map_unordered(abs, range(9)))
    assert "one image" in caught.value.remedy
