"""Workers that share no disk with the trainer get modules and compiler from object storage."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import Compiler, Request
from components.core.compiler.quarantine import Quarantine, compile_all
from components.core.formats.corpus import Corpus, load_corpus
from components.platform.errors import UserError
from components.platform.storage import publish
from components.platform.storage.uri import ObjectUri, mirror
from components.platform.workers import LocalPool
from components.platform.workers.ray_pool import RayPool
from tests.components.platform.workers.conftest import Nodes
from tests.support.buckets import local_bucket

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

BUCKET = "mlgo-workers"
CACHE_BYTES = 30_000
"""Size of a node's cache: it holds a few of the modules, not all."""
C = "int put(int);\n" + "".join(f"int g{{i}}_{j}(int x) {{{{ return put(x * {j} + {{i}}); }}}}\n" for j in range(9))


@pytest.fixture(scope="module", autouse=True)
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Before the nodes, which inherit it: a server, and this process's cache."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("MLGO_MODULE_CACHE_GB", str(CACHE_BYTES / 1e9))
        with local_bucket(BUCKET, environment, tmp_path_factory.mktemp("cache")):
            yield


def upload(directory: Path, name: str) -> Path:
    """The mirror of what is in the bucket now."""
    mirrored = mirror(ObjectUri("gs", BUCKET, name))
    with publish(mirrored, "corpus") as partial:
        shutil.copytree(directory, partial, dirs_exist_ok=True)
        (partial / "manifest.json").unlink(missing_ok=True)
    return mirrored


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, make_corpus: Callable[..., Corpus]) -> Corpus:
    sources = {f"app/m{i}.c": C.format(i=i) for i in range(30)}
    made = make_corpus(tmp_path_factory.mktemp("corpus") / "corpus", sources)
    return load_corpus(upload(made.directory, "corpus"))


@pytest.fixture(scope="module")
def toolchain(tmp_path_factory: pytest.TempPathFactory, clang: Path) -> Path:
    """A compiler that exists in the bucket only, but for the clang that it runs."""
    directory = tmp_path_factory.mktemp("toolchain")
    (directory / "bin").mkdir()
    (directory / "bin" / "clang").write_text(f'#!/bin/sh\nexec {clang} "$@"\n')
    (directory / "bin" / "clang").chmod(0o755)
    return upload(directory, "toolchain")


def sizes(pool: RayPool | LocalPool, compiler: Compiler, corpus: Corpus) -> list:
    requests = [Request(module, Advisor("default")) for module in corpus]
    done = compile_all(pool, compiler, requests, Quarantine(0))
    return sorted((request.module.name, result.samples[0].text_size_bytes) for request, result in done)


def test_workers_fetch_compiler_once_and_modules_individually(
    nodes: Nodes, cluster_pool: RayPool, corpus: Corpus, toolchain: Path, clang: Path
) -> None:
    with LocalPool(2) as local:
        expected = sizes(local, Compiler(clang, "inlining"), corpus)
    assert len(expected) == 30
    assert sum(module.bitcode.stat().st_size for module in corpus) > 3 * CACHE_BYTES
    hidden = toolchain.with_name("hidden")
    compiler = Compiler(toolchain / "bin" / "clang", "inlining")
    assert sizes(cluster_pool, compiler, corpus) == expected
    # Once more, with the compiler out of this process's reach: what workers run is theirs. Its manifest stays.
    os.rename(toolchain / "bin", hidden)
    try:
        assert sizes(cluster_pool, compiler, corpus) == expected
    finally:
        os.rename(hidden, toolchain / "bin")
    for number in range(2):
        entries = list((nodes.cache(number) / "modules").iterdir())
        held = sum(path.stat().st_size for entry in entries for path in entry.rglob("*") if path.is_file())
        assert 0 < held <= CACHE_BYTES
        assert not (nodes.cache(number) / "gs" / BUCKET / "corpus").exists()  # never the whole corpus
        assert list((nodes.cache(number) / "gs" / BUCKET / "toolchain").rglob("bin/clang"))


def test_corpus_replaced_during_training_is_reported(
    cluster_pool: RayPool, corpus: Corpus, clang: Path, make_corpus: Callable[..., Corpus], tmp_path: Path
) -> None:
    made = make_corpus(tmp_path / "corpus", {"app/m0.c": C.format(i=0)})
    old = load_corpus(upload(made.directory, "replaced"))
    (made.directory / "manifest.json").unlink()
    (made.directory / "more").write_text("another content\n")
    stale = mirror(ObjectUri("gs", BUCKET, "replaced"))
    corpus_aside = tmp_path / "kept"
    shutil.copytree(stale, corpus_aside)
    upload(made.directory, "replaced")
    shutil.rmtree(stale)
    shutil.copytree(corpus_aside, stale)  # this process has read the old one
    with pytest.raises(UserError, match="was replaced or removed"):
        sizes(cluster_pool, Compiler(clang, "inlining"), old)
