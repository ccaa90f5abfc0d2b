"""Tests modules that crash, hang or fail once, compiled by a real clang behind a script that injects these faults."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.compile import CompileError, Compiler, Request
from components.core.compiler.quarantine import Quarantine, compile_all
from components.core.formats.corpus import Corpus
from components.platform.console import Progress
from components.platform.errors import UserError
from components.platform.workers import LocalPool
from tests.bench.plain_compile import time_plain_compiles

TEXT = "extern int put(int);\nint {name}(int x) {{ return put(x) + {n}; }}\n"


@pytest.fixture
def corpus(make_corpus: Callable[..., Corpus], tmp_path: Path) -> Corpus:
    names = ["a", "crash", "b", "hang", "flaky", "c"]
    return make_corpus(tmp_path / "c", {f"p/{name}.c": TEXT.format(name=name, n=n) for n, name in enumerate(names)})


def requests(corpus: Corpus) -> list[Request]:
    return [Request(module, Advisor("default")) for module in corpus]


def test_failures_are_retried_then_quarantined(corpus: Corpus, fragile_clang: Path) -> None:
    quarantine = Quarantine(0.5)
    with LocalPool(2) as pool, Progress("compiling", len(corpus)) as progress:
        compiler = Compiler(fragile_clang, "inlining", timeout_s=3)
        done = list(compile_all(pool, compiler, requests(corpus), quarantine, progress))
        assert sorted(result.module_name for _, result in done) == ["p/a.c.o", "p/b.c.o", "p/c.c.o", "p/flaky.c.o"]
        assert all(request.module.name == result.module_name for request, result in done)
        assert {error.module: error.reason for error in quarantine.errors} == {
            "p/crash.c.o": "failed",
            "p/hang.c.o": "timeout",
        }
        assert "crash" in next(e.detail for e in quarantine.errors if e.reason == "failed")
        assert progress.done == len(corpus)
        # Quarantined modules are not compiled again.
        again = list(compile_all(pool, compiler, requests(corpus), quarantine))
        assert len(again) == 4 and len(quarantine.errors) == 2


def test_too_many_failures_raise_with_names_and_reasons(corpus: Corpus, fragile_clang: Path) -> None:
    with LocalPool(2) as pool:
        compiler = Compiler(fragile_clang, "inlining", timeout_s=3)
        with pytest.raises(UserError, match="1 of 6") as caught:
            list(compile_all(pool, compiler, requests(corpus), Quarantine(0.05)))
    message = str(caught.value)
    assert "p/crash.c.o: failed: " in message or "p/hang.c.o: timeout: " in message
    assert "--max-failed-fraction" in message


def test_error_of_all_modules_is_raised_at_once(corpus: Corpus, tmp_path: Path) -> None:
    with LocalPool(2) as pool, pytest.raises(UserError, match="no-clang"):
        list(compile_all(pool, Compiler(tmp_path / "no-clang", "inlining"), requests(corpus), Quarantine(1.0)))


def test_fraction_is_relative_to_total_modules() -> None:
    """Two failures among the first three modules of a hundred are two in a hundred."""
    quarantine = Quarantine(0.02, total_modules=100)
    quarantine.see("fine")
    for name in ("x", "y"):
        quarantine.add(CompileError(name, "failed", "why"))
        quarantine.check()
    quarantine.add(CompileError("z", "log", "why"))
    with pytest.raises(UserError, match="2 failed, 1 log"):
        quarantine.check()


def test_json_round_trip() -> None:
    quarantine = Quarantine(0.25)
    quarantine.see("fine")
    quarantine.add(CompileError("bad", "timeout", "more than 60 s"))
    copy = Quarantine.from_json(json.loads(json.dumps(quarantine.to_json())))
    assert copy.to_json() == quarantine.to_json()
    assert "bad" in copy and "fine" not in copy and copy.errors[0].reason == "timeout"
    with pytest.raises(UserError, match="1 of 2 modules"):
        copy.check()
    with pytest.raises(UserError, match="version 7"):
        Quarantine.from_json({"version": 7})


@pytest.mark.parametrize("fraction", [-0.1, 1.5])
def test_invalid_fraction_is_refused(fraction: float) -> None:
    with pytest.raises(UserError, match="between 0 and 1"):
        Quarantine(fraction)


def test_missing_code_generator_is_named(corpus: Corpus) -> None:
    quarantine = Quarantine(0)
    detail = "error: unable to create target: 'No available targets are compatible with triple \"riscv64\"'"
    quarantine.add(CompileError("a.o", "failed", detail))
    with pytest.raises(UserError) as caught:
        quarantine.check()
    assert "--targets all" in caught.value.remedy and "--strategy plugin" in caught.value.remedy


def test_plain_compile_refuses_failed_modules(corpus: Corpus, fragile_clang: Path, clang: Path) -> None:
    with LocalPool(2) as pool:
        assert time_plain_compiles(pool, Compiler(clang, "inlining"), corpus.modules) > 0
        with pytest.raises(UserError, match="do not compile"):
            time_plain_compiles(pool, Compiler(fragile_clang, "inlining", timeout_s=3), corpus.modules[:2])
