from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.platform.command import INTERRUPTED
from components.platform.errors import UserError
from components.platform.processes import supervision
from components.platform.workers import LocalPool, WorkerPool, make_pool
from tests.components.conftest import living
from tests.support.waiting import wait_until


def test_every_item_is_yielded_once_with_its_index() -> None:
    with LocalPool(3) as pool:
        items = [5, 0, 7, 0, 9]
        outcomes = dict(pool.map_unordered(lambda n: 630 // n, items))
    assert {i: o for i, o in outcomes.items() if not isinstance(o, Exception)} == {0: 126, 2: 90, 4: 70}
    assert [type(outcomes[i]) for i in (1, 3)] == [ZeroDivisionError] * 2


def test_pool_can_be_used_repeatedly() -> None:
    with LocalPool(2) as pool:
        for n in (0, 1, 50):
            assert sorted(pool.map_unordered(str, range(n))) == [(i, str(i)) for i in range(n)]


def test_concurrency_is_the_number_of_workers() -> None:
    barrier = threading.Barrier(3)  # passed only if three wait at the same time
    with LocalPool(3) as pool:
        assert len(list(pool.map_unordered(lambda _: barrier.wait(timeout=60), range(6)))) == 6


def test_items_are_read_a_bounded_number_ahead() -> None:
    read = 0

    def items() -> Iterator[int]:
        nonlocal read
        for n in range(1, 1001):
            read = n
            yield n

    with LocalPool(2) as pool:
        for taken, _ in enumerate(pool.map_unordered(lambda n: n, items()), 1):
            assert read <= taken + 2 * pool.size + 1
    assert read == 1000


def test_closing_the_iterator_kills_running_work(marker: str) -> None:
    def work(n: int) -> object:
        return n if n == 0 else supervision.run(["/bin/sh", "-c", f"sleep 3600; : {marker}"], 3600)

    started = time.monotonic()
    with LocalPool(2) as pool:
        outcomes = pool.map_unordered(work, range(50))
        assert next(outcomes) == (0, 0)
        while not living(marker):
            assert time.monotonic() - started < 60
        outcomes.close()  # type: ignore[attr-defined]  # it is a generator
        assert living(marker) == []
        assert list(pool.map_unordered(abs, [-3])) == [(0, 3)]  # and can be used after that
    assert time.monotonic() - started < 600  # not the hour that they would sleep


def test_closing_the_pool_kills_work_of_a_failed_consumer(marker: str) -> None:
    def work(n: int) -> object:
        return n if n == 0 else supervision.run(["/bin/sh", "-c", f"sleep 3600; : {marker}"], 3600)

    with pytest.raises(ValueError, match="the consumer's"), LocalPool(2) as pool:  # the traceback holds the iterator
        for _ in pool.map_unordered(work, range(50)):
            while not living(marker):
                time.sleep(0.01)
            raise ValueError("the consumer's")
    assert living(marker) == []


@pytest.mark.parametrize("interrupt", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_step_ends_at_once_without_orphans(interrupt: signal.Signals, marker: str, tmp_path: Path) -> None:
    program = f"""
from components.platform.processes import supervision
from components.platform.command import run_step
from components.platform.workers import LocalPool
def main():
    with LocalPool(2) as pool:
        list(pool.map_unordered(lambda n: supervision.run(["/bin/sh", "-c", "sleep 3600; : {marker}"], 3600), range(9)))
run_step(main)
"""
    with subprocess.Popen([sys.executable, "-c", program], stderr=-1, text=True) as step:
        wait_until(lambda: len(living(marker)) >= 3)  # the step itself and two children
        step.send_signal(interrupt)
        _, messages = step.communicate(timeout=60)
    assert step.returncode == 128 + interrupt
    assert messages == f"{INTERRUPTED}\n"


def test_make_pool_by_specification() -> None:
    pool: WorkerPool = make_pool("local:3")
    assert pool.size == 3
    pool.close()
    pool = make_pool("local")
    assert pool.size >= 1
    pool.close()


@pytest.mark.parametrize(
    "spec",
    ["", "local:", "local:0", "local:-1", "local:two", "cloud", "ray:4", "ray:h", "ray:", "ray:host:port", "ray:a b:1"],
)
def test_unknown_specifications_are_refused(spec: str) -> None:
    with pytest.raises(UserError, match="--workers"):
        make_pool(spec)
