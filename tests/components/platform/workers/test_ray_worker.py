"""The actor without a cluster: calls that arrive late or overlap."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.platform.processes import supervision

pytest.importorskip("ray")
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
