"""The pool on Ray, with real Ray processes: one machine's, and a cluster of several raylets."""

from __future__ import annotations

import operator
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Request
from components.core.compiler.quarantine import Quarantine, compile_all
from components.core.formats.corpus import Module
from components.platform.errors import UserError
from components.platform.processes import supervision
from components.platform.workers import make_pool
from components.platform.workers.ray_pool import RayPool
from tests.components.conftest import living
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def pool() -> Iterator[RayPool]:
    with RayPool(slots=2) as ray:
        yield ray


def test_every_item_is_yielded_once_with_its_index(pool: RayPool) -> None:
    outcomes = dict(pool.map_unordered(partial(operator.floordiv, 630), [5, 0, 7, 0, 9]))
    assert {i: o for i, o in outcomes.items() if not isinstance(o, Exception)} == {0: 126, 2: 90, 4: 70}
    assert [type(outcomes[i]) for i in (1, 3)] == [ZeroDivisionError] * 2


def test_pool_can_be_used_repeatedly(pool: RayPool) -> None:
    for n in (0, 1, 50):
        assert sorted(pool.map_unordered(str, range(n))) == [(i, str(i)) for i in range(n)]


def test_concurrency_is_the_number_of_slots(pool: RayPool) -> None:
    assert pool.size == 2
    list(pool.map_unordered(abs, [1]))  # agents are there
    began_s = time.monotonic()
    assert len(list(pool.map_unordered(time.sleep, [1.0] * 4))) == 4
    assert 2 <= time.monotonic() - began_s < 3.5


def test_items_are_read_a_bounded_number_ahead(pool: RayPool) -> None:
    read = 0

    def items() -> Iterator[int]:
        nonlocal read
        for n in range(1, 201):
            read = n
            yield n

    for taken, _ in enumerate(pool.map_unordered(abs, items()), 1):
        assert read <= taken + 2 * pool.size + 1
    assert read == 200


def test_result_does_not_wait_for_parallel_items(pool: RayPool) -> None:
    began_s = time.monotonic()
    outcomes = pool.map_unordered(time.sleep, [0.0, 4.0, 4.0, 4.0])
    assert next(iter(outcomes)) == (0, None)
    assert time.monotonic() - began_s < 3
    outcomes.close()  # type: ignore[attr-defined]


def blob(size: int) -> bytes:
    return b"x" * size


def test_results_of_any_size_are_returned(pool: RayPool) -> None:
    sizes = [10, 3_000_000, 0, *[700_000] * 6, 50_000]
    assert {i: len(o) for i, o in pool.map_unordered(blob, sizes) if isinstance(o, bytes)} == dict(enumerate(sizes))


def quit_thread(n: int) -> int:
    if n == 1:
        raise SystemExit(3)
    return n


def test_unusual_exceptions_are_returned(pool: RayPool) -> None:
    outcomes = dict(pool.map_unordered(quit_thread, range(3)))
    assert (outcomes[0], outcomes[2]) == (0, 2)
    assert isinstance(outcomes[1], RuntimeError) and "SystemExit: 3" in str(outcomes[1])


def shell(marker: str, n: int) -> object:
    """Item 0 is done at once, each other one sleeps."""
    return n if n == 0 else supervision.run(["/bin/sh", "-c", f"sleep 3600; : {marker}"], 3600)


def test_closing_the_iterator_kills_running_work(pool: RayPool, marker: str) -> None:
    outcomes = pool.map_unordered(partial(shell, marker), range(50))
    assert next(outcomes) == (0, 0)
    wait_until(lambda: living(marker), "a child")
    outcomes.close()  # type: ignore[attr-defined]
    assert living(marker) == []
    assert list(pool.map_unordered(abs, [-3])) == [(0, 3)]  # and can be used after that


def who(_item: object) -> int:
    return os.getpid()


def slow_square(marker: str, n: int) -> int:
    """A child that would outlive its worker, were nobody to end it."""
    supervision.run(["/bin/sh", "-c", f"sleep 0.3; : {marker}"], 60)
    return n * n


def test_killed_worker_loses_nothing_and_leaves_nothing(pool: RayPool, marker: str) -> None:
    victim: Any = next(iter(pool.map_unordered(who, [0])))[1]
    lost = pool.lost
    outcomes = []
    for outcome in pool.map_unordered(partial(slow_square, marker), range(12)):
        outcomes.append(outcome)
        if len(outcomes) == 3:
            os.kill(victim, signal.SIGKILL)  # its other thread has a child now
    assert sorted(outcomes) == [(n, n * n) for n in range(12)]
    assert pool.lost > lost
    assert next(iter(pool.map_unordered(who, [0])))[1] != victim
    wait_until(lambda: not living(marker), "an end of all children")


def status(_item: object) -> int:
    return subprocess.run(["sh", "-c", "exit 3"], check=False).returncode


def test_exit_status_of_children_is_seen_by_both_sides(pool: RayPool) -> None:
    """Ray's subreaper ignores SIGCHLD: a compiler that failed would look as if it had not."""
    assert [outcome for _, outcome in pool.map_unordered(status, range(3))] == [3, 3, 3]
    assert status(0) == 3


def read(path: Path) -> tuple[str, int]:
    return (path / "policy").read_text(), (path / "policy").stat().st_ino


def test_shared_files_arrive_unchanged(pool: RayPool, tmp_path: Path) -> None:
    inodes = set()
    for text in ("first", "second", "second"):
        (tmp_path / "policy").write_text(text)
        pool.share(tmp_path, ["policy"])
        outcomes = [outcome for _, outcome in pool.map_unordered(read, [tmp_path] * 3)]
        assert {outcome[0] for outcome in outcomes if isinstance(outcome, tuple)} == {text}
        inodes |= {outcome[1] for outcome in outcomes if isinstance(outcome, tuple)}
    assert len(inodes) == 2  # written once for each content
    assert (tmp_path / "policy").stat().st_ino not in inodes


def policy_files(request: Request) -> list[str]:
    assert request.advisor.policy is not None
    return sorted(path.name for path in request.advisor.policy.iterdir())


def test_workers_get_the_policy_of_either_training_clang(pool: RayPool, tmp_path: Path) -> None:
    """LLVM's own development mode loads model.tflite, ours policy.so."""
    policy = tmp_path / "policy"
    policy.mkdir()
    files = ["model.tflite", "output_spec.json", "policy.so"]
    for name in (*files, "weights.npz"):
        (policy / name).write_text(name)
    request = Request(Module("m", tmp_path), Advisor("policy", policy=policy))
    assert [content for _, content in compile_all(pool, policy_files, [request], Quarantine(0))] == [files]


def test_many_directories_are_shared_at_once(pool: RayPool, tmp_path: Path) -> None:
    """Evolution strategies compile with a policy per perturbation; one of the directories does not change."""
    directories = [tmp_path / str(number) for number in range(20)]
    for change in range(2):
        for directory in directories:
            directory.mkdir(exist_ok=True)
            (directory / "policy").write_text(directory.name if directory is directories[0] else f"{change}")
            pool.share(directory, ["policy"])
        outcomes = [outcome for _, outcome in pool.map_unordered(read, directories) if isinstance(outcome, tuple)]
        assert sorted(text for text, _ in outcomes) == sorted(["0", *[f"{change}"] * 19])
        local = {(directory / "policy").stat().st_ino for directory in directories}
        assert not local & {inode for _, inode in outcomes}, "read where the pool's content is, not here"


def test_cluster_that_is_not_reached_is_refused() -> None:
    with pytest.raises(UserError, match=r"cannot be used|already connected"):
        make_pool("ray:127.0.0.1:1")
