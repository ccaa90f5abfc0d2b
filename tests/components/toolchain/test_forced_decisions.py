"""Forced inlining decisions in the training clang."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import CompileError, Compiler, Request
from components.core.compiler.forced_decisions import ForcedDecisions
from tests.components.toolchain.conftest import decisions_by_key

pytestmark = pytest.mark.toolchain


def force(*keys: tuple[str, str, int, int]) -> ForcedDecisions:
    names = tuple(sorted({name for a, b, _, _ in keys for name in (a, b)}))
    rows = [(names.index(a), names.index(b), k, action) for a, b, k, action in keys]
    return ForcedDecisions(names, np.array(rows, np.int32).reshape(-1, 4))


@pytest.fixture
def tree(tiny_corpus):
    (module,) = (m for m in tiny_corpus.modules if m.name.startswith("app/tree"))
    return module


def test_each_sample_takes_its_forced_decisions_and_otherwise_the_bases(training_toolchain, tree) -> None:
    compiler = Compiler(training_toolchain / "bin" / "clang", "inlining")
    base = decisions_by_key(compiler(Request(tree, Advisor("log"))).samples[0])
    first = ("root", "small", 0)
    assert first in base and ("root", "big", 1) in base
    forced = (
        force(),
        force((*first, 1 - base[first])),
        force(("root", "big", 0, 0), ("root", "big", 1, 1), ("nobody", "small", 0, 1), ("root", "small", 7, 1)),
    )
    plain, flipped, mixed = compiler(Request(tree, Advisor("log", samples=3), forced=forced)).samples
    assert decisions_by_key(plain) == base and not len(plain.unreached)
    assert decisions_by_key(flipped)[first] == 1 - base[first] and not len(flipped.unreached)
    taken = decisions_by_key(mixed)
    assert (taken["root", "big", 0], taken["root", "big", 1]) == (0, 1)
    assert mixed.unreached.tolist() == [2, 3]  # indices in the given order, not in the sorted one


def test_samples_that_compile_at_the_same_time_are_the_same(training_toolchain, tree) -> None:
    compiler = Compiler(training_toolchain / "bin" / "clang", "inlining")
    forced = tuple(force(("root", "big", 0, action), ("root", "small", 0, 0)) for action in (0, 1, 0, 1, 1))
    advisor = Advisor("heuristic", samples=len(forced))
    serial, parallel = (
        compiler(Request(tree, advisor, extra_flags=("-mllvm", f"-mlgo-sample-jobs={jobs}"), forced=forced)).samples
        for jobs in (1, 3)
    )
    sizes = [sample.text_size_bytes for sample in serial]
    assert [sample.text_size_bytes for sample in parallel] == sizes and len(set(sizes)) == 2


def test_samples_without_logs_have_the_same_objects(training_toolchain, tree, policy) -> None:
    compiler = Compiler(training_toolchain / "bin" / "clang", "inlining")
    forced = tuple(force(("root", "big", i, 1)) for i in range(2))
    logged = compiler(Request(tree, Advisor("policy", policy, samples=2, log=True), True, forced=forced)).samples
    silent = compiler(Request(tree, Advisor("policy", policy, samples=2), True, forced=forced)).samples
    for with_log, without in zip(logged, silent, strict=True):
        assert without.log is None and with_log.log is not None
        assert without.text_size_bytes == with_log.text_size_bytes
        assert without.function_sizes.by_name() == with_log.function_sizes.by_name()


def with_word(data: bytes, word: int, value: int) -> bytes:
    """Return the file with one word of its first row replaced."""
    at = data.index(b"\n") + 1 + 4 * word
    return data[:at] + struct.pack("<i", value) + data[at + 4 :]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: data[:-1], "ends inside its names"),
        (lambda data: data + b"x", "something follows its names"),
        (lambda data: data[: data.index(b"\n") + 9], "ends inside its decisions"),
        (lambda data: b"not JSON\n", "it has no header"),
        (lambda data: data.replace(b"inlining", b"regalloc"), "not for the problem inlining"),
        (lambda data: data.replace(b'"version": 1', b'"version": 9'), "version is not 1"),
        (lambda data: data.replace(b'"names": 2', b'"names": 1'), "out of range|follows its names"),
        (lambda data: b"", "it has no header"),
        (lambda data: data.replace(b"decisions", b"decision"), "its header is damaged"),
        (lambda data: with_word(data, 1, -2), "out of range"),
        (lambda data: with_word(data, 2, 2**31 - 1), "out of range"),
        (lambda data: with_word(data, 3, 2), "out of range"),  # no action
    ],
)
def test_invalid_forced_decisions_file_fails_the_compile(training_toolchain, tree, tmp_path, damage, message) -> None:
    path = tmp_path / "forced"
    force(("root", "small", 0, 1)).write(path, "inlining")
    path.write_bytes(damage(path.read_bytes()))
    compiler = Compiler(training_toolchain / "bin" / "clang", "inlining")
    flags = ("-mllvm", f"-mlgo-forced-decisions={path}")
    with pytest.raises(CompileError, match=message) as caught:
        compiler(Request(tree, Advisor("log"), extra_flags=flags))
    assert caught.value.module == tree.name and str(path) in caught.value.detail
