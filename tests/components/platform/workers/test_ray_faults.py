"""Faults of a cluster with real Ray processes and compiles: nothing is lost or counted twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.compiler.quarantine import Quarantine, compile_all
from components.core.formats.corpus import Corpus
from components.platform.errors import UserError
from components.platform.workers import LocalPool, WorkerPool
from components.platform.workers.ray_pool import RayPool
from tests.components.conftest import living
from tests.components.platform.workers.conftest import SLOTS, Nodes
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

C = """int put(int);
static int f{i}(int x) {{ return x * {i} + 1; }}
int g{i}(int x) {{ return put(f{i}(x)) + f{i}(x + {i}); }}
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, make_corpus: Callable[..., Corpus]) -> Corpus:
    """Two dozen modules of different sizes."""
    sources = {f"app/m{i}.c": "".join(C.format(i=100 * i + j) for j in range(i % 5 + 1)) for i in range(24)}
    return make_corpus(tmp_path_factory.mktemp("corpus") / "corpus", sources)


@pytest.fixture
def slow_clang(clang: Path, tmp_path: Path, marker: str) -> Path:
    """clang that takes half a second longer, in a child that would outlive its worker if nobody ended it."""
    script = tmp_path / "slow-clang"
    script.write_text(f'#!/bin/sh\n# {marker}\nsh -c "sleep 0.5; : {marker}"\nexec {clang} "$@"\n')
    script.chmod(0o755)
    return script


def requests(modules: Sequence) -> list[Request]:
    return [Request(module, Advisor("default")) for module in modules]


def sizes(pool: WorkerPool, clang: Path, modules: Sequence, quarantine: Quarantine | None = None) -> list:
    """(name, bytes) of what could be compiled, in the order of the names; twice what was counted twice."""
    quarantine = quarantine or Quarantine(0)
    done = compile_all(pool, Compiler(clang, "inlining", timeout_s=5), requests(modules), quarantine)
    return sorted((request.module.name, result.samples[0].text_size_bytes) for request, result in done)


@pytest.fixture(scope="module")
def expected(clang: Path, corpus: Corpus) -> list:
    with LocalPool(2) as pool:
        return sizes(pool, clang, corpus.modules)


def test_workers_compile_like_this_machine(cluster_pool: RayPool, clang: Path, corpus: Corpus, expected: list) -> None:
    assert sizes(cluster_pool, clang, corpus.modules) == expected
    assert cluster_pool.size == 2 * SLOTS  # and none on the head


def test_failing_modules_are_quarantined_as_on_one_machine(  # their kinds in its name would be in paths
    cluster_pool: RayPool, fragile_clang: Path, make_corpus: Callable[..., Corpus], tmp_path: Path
) -> None:
    names = ["app/good.c", "app/crash.c", "app/hang.c", "app/flaky.c", "app/fine.c"]
    corpus = make_corpus(tmp_path / "corpus", {name: C.format(i=i) for i, name in enumerate(names)})
    quarantine = Quarantine(0.5)
    done = sizes(cluster_pool, fragile_clang, corpus.modules, quarantine)
    assert [name for name, _ in done] == ["app/fine.c.o", "app/flaky.c.o", "app/good.c.o"]
    assert {error.module: error.reason for error in quarantine.errors} == {
        "app/crash.c.o": "failed",
        "app/hang.c.o": "timeout",
    }
    assert "signal 11" in next(e.detail for e in quarantine.errors if e.module == "app/crash.c.o")


def test_node_killed_during_an_iteration(
    nodes: Nodes,
    cluster_pool: RayPool,
    slow_clang: Path,
    corpus: Corpus,
    expected: list,
    marker: str,
) -> None:
    node = nodes.add()
    wait_until(
        lambda: sizes(cluster_pool, slow_clang, corpus.modules[:2]) and cluster_pool.size == 3 * SLOTS, "the node"
    )
    done = []
    compiling = compile_all(cluster_pool, Compiler(slow_clang, "inlining"), requests(corpus.modules), Quarantine(0))
    for request, result in compiling:
        done.append((request.module.name, result.samples[0].text_size_bytes))
        if len(done) == 6:
            nodes.kill(node)
    assert sorted(done) == expected
    assert cluster_pool.lost >= 1
    wait_until(lambda: not living(marker), "an end of all compiles")
    assert sizes(cluster_pool, slow_clang, corpus.modules[:2]) and cluster_pool.size == 2 * SLOTS


def test_user_error_names_the_worker(cluster_pool: RayPool, corpus: Corpus, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"on the worker .*: .*/no-clang is not a program"):
        sizes(cluster_pool, tmp_path / "no-clang", corpus.modules)
