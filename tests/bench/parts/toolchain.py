"""Build times of the two clangs, and size and memory that the policy adds to the release clang."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

from components.core.compiler.advisor import Advisor
from components.core.formats.corpus import load_corpus
from components.platform.errors import UserError
from components.platform.storage.cache import default_cache_dir
from components.toolchain.build import build, build_tree
from components.toolchain.sdk import Sdk, find_sdk
from components.toolchain.source import fetch_source_files
from tests.bench.context import BenchContext
from tests.bench.memory import peak_growth_kib

JOBS = 2
MODULES = 20
"""Number of modules to measure the memory of compiles on, spread over the corpus."""


def measure(context: BenchContext) -> dict[str, float]:
    """training_clang_s: from LLVM's SDK and its downloaded source, every object compiled, none from ccache.
    release_clang_s: from a policy, after the training clang was built; both include publication and probe, medians.
    release_clang_growth_bytes: growth of the release clang over the same clang without a policy, both stripped.
    release_peak_memory_growth_kib: growth of the peak memory of a compile, between the same two clangs; it depends by
    chance on which functions share pages in each.
    release_peak_memory_of_policy_kib: the same growth, between LLVM's heuristic and the policy in the release clang.
    """
    sdk = find_sdk(19, None)
    source = fetch_source_files("deb", sdk, default_cache_dir())
    training_s, release_s = [], []
    for turn in range(context.repeats):
        cache = _cache_dir(context, source, turn)
        policy = ("--policy", str(context.policy))
        training_s.append(_toolchain_s(cache, context.scratch / "training", "--mode", "training"))
        release_s.append(_toolchain_s(cache, context.scratch / "release", "--mode", "release", *policy))
        if turn < context.repeats - 1:
            shutil.rmtree(cache)
    release, plain = context.scratch / "release" / "bin" / "clang", _plain(cache, sdk, source)
    growth = _stripped_bytes(context, release, sdk) - _stripped_bytes(context, plain, sdk)
    modules = load_corpus(context.corpus).modules
    memory = peak_growth_kib(
        modules[:: max(1, len(modules) // MODULES)],
        {
            "release_peak_memory_growth_kib": (plain, ()),
            "release_peak_memory_of_policy_kib": (release.resolve(), ()),
        },
        (release.resolve(), Advisor("release").flags(context.problem, None, None)),
        context.repeats,
        context.scratch / "m.o",
    )
    return {
        "training_clang_s": statistics.median(training_s),
        "release_clang_s": statistics.median(release_s),
        "release_clang_growth_bytes": growth,
        **memory,
    }


def _cache_dir(context: BenchContext, source: Path, turn: int) -> Path:
    """Return a cache directory in which LLVM's source is unpacked and nothing is compiled."""
    cache = context.scratch / f"cache-{turn}"
    cache.mkdir()
    (cache / source.parent.name).symlink_to(source.parent)
    return cache


def _toolchain_s(cache: Path, output: Path, *arguments: str) -> float:
    command = [sys.executable, "-m", "components.toolchain", *arguments, "--jobs", str(JOBS)]
    command += ["--cache", str(cache), "--output", str(output)]
    started_s = time.perf_counter()
    if subprocess.run(command, env={**os.environ, "CCACHE_DISABLE": "1"}, check=False).returncode != 0:
        raise UserError("cannot build a clang", "see the message above")
    return time.perf_counter() - started_s


def _plain(cache: Path, sdk: Sdk, source: Path) -> Path:
    # Use the build tree of the last repetition, found by the same source path: it has all objects but one.
    linked = cache / source.parent.name / source.name
    with build_tree(cache, sdk, linked, "native") as tree:
        return build(tree, "plain", sdk, linked, "native", JOBS, {}, "cpp")


def _stripped_bytes(context: BenchContext, clang: Path, sdk: Sdk) -> int:
    stripped = context.scratch / "stripped"
    subprocess.run([sdk.prefix / "bin" / "llvm-strip", "-o", stripped, clang.resolve()], check=True)
    return stripped.stat().st_size
