"""The actor without a cluster: calls that arrive late or overlap."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from components.platform.processes import supervision
from components.platform.storage.object_storage.object_store import StorageError

pytest.importorskip("ray")
from components.platform.workers import ray_worker, serialization
from components.platform.workers.ray_worker import RayWorker

STARTED, GO_ON = threading.Event(), threading.Event()


def compile_for(seconds: float) -> str:
    return str(supervision.run([Path("/bin/sleep"), str(seconds)], timeout_s=20).returncode)


def download(_item: object) -> str:
    """Block until GO_ON is set; signals do not end this."""
    STARTED.set()
    assert GO_ON.wait(20)
    return "late"


def run(worker: RayWorker, number: int, function: Callable[[Any], Any], *items: object) -> list[Any]:
    assert worker.prepare(number, pickle.dumps(function), {}) is None
    return results(worker, number, *items)


def results(worker: RayWorker, number: int, *items: object) -> list[Any]:
    """(whether it succeeded, result) of each item, in order."""
    done = dict(worker.exchange(number, [(key, pickle.dumps(item)) for key, item in enumerate(items)]))
    while len(done) < len(items):
        done |= dict(worker.exchange(number, []))
    return [pickle.loads(done[key]) for key in range(len(items))]


def test_slow_cancellation_spares_compiles_of_the_next_function() -> None:
    STARTED.clear()
    GO_ON.clear()
    worker = RayWorker(2)
    assert worker.prepare(0, pickle.dumps(download), {}) is None
    slow = threading.Thread(target=worker.exchange, args=(0, [(0, pickle.dumps(0))]))
    slow.start()
    assert STARTED.wait(20)
    ending = threading.Thread(target=worker.cancel, args=(0,))
    ending.start()
    try:
        assert run(worker, 1, compile_for, 0.5) == [(True, "0")]
        assert ending.is_alive()
    finally:
        GO_ON.set()
        for thread in (slow, ending):
            thread.join(20)
    assert not ending.is_alive() and not slow.is_alive()


def test_late_function_does_not_replace_a_later_one() -> None:
    worker = RayWorker(1)
    assert run(worker, 1, str, 5) == [(True, "5")]
    assert worker.prepare(0, pickle.dumps(abs), {}) is None
    assert results(worker, 1, -5) == [(True, "-5")]


class AwayStorage:
    """A cache of files whose storage does not answer `failures` times."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.asked = threading.Event()

    @contextmanager
    def using(self) -> Iterator[None]:
        yield

    def files(self, *_: object) -> Path:
        if self.failures:
            self.failures -= 1
            self.asked.set()
            raise StorageError("s3://b does not answer")
        return Path("/modules")


class OfBucket:
    """An item whose files are in a bucket."""

    def __reduce__(self) -> Any:
        return serialization._resolve_file_set, (("s3://b/corpus", "digest", ("m",)), dict, {})


def test_item_waits_for_storage_that_answered_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_worker, "_STORAGE_POLL_S", 0.01)
    worker = RayWorker(1)
    worker._file_cache = AwayStorage(1)
    ((succeeded, error),) = run(worker, 0, str, OfBucket())
    assert not succeeded and isinstance(error, StorageError) and error.problem.startswith("on the worker ")
    assert run(worker, 1, str, OfBucket())[0][0]
    worker._file_cache.failures = 20
    assert run(worker, 2, str, OfBucket()) == [(True, "{'directory': PosixPath('/modules')}")]
    monkeypatch.setattr(ray_worker, "STORAGE_PATIENCE_S", 0.1)
    worker._file_cache.failures = 1000
    assert not run(worker, 3, str, OfBucket())[0][0]


def test_item_that_waits_for_storage_can_be_cancelled() -> None:
    worker = RayWorker(1)
    worker._file_cache, worker._storage_answered = AwayStorage(1000), True
    assert worker.prepare(0, pickle.dumps(str), {}) is None
    waiting = threading.Thread(target=worker.exchange, args=(0, [(0, pickle.dumps(OfBucket()))]))
    waiting.start()
    assert worker._file_cache.asked.wait(20)
    worker.cancel(0)
    waiting.join(20)
    assert not waiting.is_alive() and run(worker, 1, str, 5) == [(True, "5")]
