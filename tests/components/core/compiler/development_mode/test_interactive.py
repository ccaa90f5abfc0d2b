"""Interactive mode: a policy in this process decides for Debian's clang, which has none."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from components.core.compiler.advisor import Advisor
from components.core.compiler.development_mode.interactive import compile_interactively
from components.core.formats.toolchain import load_toolchain
from components.core.policy.export import export_fast
from components.platform.errors import UserError
from components.platform.processes import supervision
from tests.components.toolchain.conftest import random_upstream_policy

pytestmark = pytest.mark.toolchain

CLANG = {major: Path(f"/usr/lib/llvm-{major}/bin/clang") for major in (19, 22)}


@pytest.fixture
def module(tiny_corpus) -> Path:
    path: Path = tiny_corpus.directory / "lib/strings.cpp.o.bc"
    return path


def test_decisions_in_a_stock_clang_are_those_of_the_same_policy_in_the_training_clang(
    training_toolchain: Path, module: Path, tmp_path: Path
) -> None:
    toolchain = load_toolchain(training_toolchain)
    policy = random_upstream_policy(toolchain)
    export_fast(policy, tmp_path, toolchain.clang)
    flags = Advisor("policy", policy=tmp_path).flags("inlining", None, None)
    subprocess.run([toolchain.clang, "-Oz", *flags, "-c", module, "-o", tmp_path / "loaded.o"], check=True)

    arguments = ["-Oz", "-c", str(module), "-o", str(tmp_path / "asked.o")]
    decisions = compile_interactively(
        CLANG[19], arguments, "inlining", lambda _, columns: int(policy.logits(columns).argmax()), 60, tmp_path
    )
    assert {decision.action for decision in decisions} == {0, 1}
    assert (tmp_path / "asked.o").read_bytes() == (tmp_path / "loaded.o").read_bytes()
    assert sorted(path.name for path in tmp_path.glob("mlgo-channel-*")) == []


@pytest.mark.parametrize("major", CLANG)
def test_answers_are_obeyed(module: Path, tmp_path: Path, major: int) -> None:
    calls = {}
    for action in (0, 1):
        output = tmp_path / f"{action}.s"
        arguments = ["-Oz", "-S", str(module), "-o", str(output)]
        decisions = compile_interactively(
            CLANG[major], arguments, "inlining", lambda *_, action=action: action, 60, tmp_path
        )
        assert decisions and all(decision.action == action for decision in decisions)
        calls[action] = output.read_text().count("callq")
    assert calls[1] < calls[0]


def test_register_allocation_is_asked_for_each_function(module: Path, tmp_path: Path) -> None:
    """The candidate's own position is always allowed: nothing is evicted."""
    arguments = ["-O2", "-c", str(module), "-o", str(tmp_path / "m.o")]

    def first_allowed(_context: str, columns: Mapping[str, Any]) -> int:
        return int(columns["mask"].reshape(-1).argmax())

    decisions = compile_interactively(CLANG[19], arguments, "regalloc", first_allowed, 60, tmp_path)
    assert {decision.context for decision in decisions} <= {"", *_symbols(tmp_path / "m.o")}
    assert (tmp_path / "m.o").stat().st_size


def _symbols(path: Path) -> set[str]:
    done = subprocess.run(["nm", "-j", path], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_exception_of_the_host_ends_the_compiler(module: Path, tmp_path: Path) -> None:
    arguments = ["-Oz", "-c", str(module), "-o", str(tmp_path / "m.o")]
    with pytest.raises(ZeroDivisionError):
        compile_interactively(CLANG[22], arguments, "inlining", lambda *_: 1 // 0, 60, tmp_path)
    assert not (tmp_path / "m.o").exists()
    assert not [thread for thread in threading.enumerate() if "_run" in thread.name]


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("exit 3", "status 3"),
        ("sleep 60", "longer than 1 s"),
        ("kill -SEGV $$", "status -11"),
        ('for last; do :; done; echo \'"nonsense"\' >"${last#*=}.out"; sleep 60', "not what LLVM's interactive mode"),
        ('for last; do :; done; exec cat /dev/zero >"${last#*=}.out"', "a message of more than 16777216 bytes"),
    ],
)
def test_compiler_that_fails_is_reported(tmp_path: Path, program: str, message: str) -> None:
    clang = tmp_path / "clang"
    clang.write_text(f"#!/bin/bash\n{program}\n")
    clang.chmod(0o755)
    started = time.monotonic()
    with pytest.raises(UserError, match=message):
        compile_interactively(clang, [], "inlining", lambda *_: 0, 1 if "sleep" in program else 30, tmp_path)
    assert time.monotonic() - started < 30


def test_cancelled_work_ends_its_compiler(tmp_path: Path) -> None:
    """Worker pools kill the children of the threads whose work they cancel."""
    clang = tmp_path / "clang"
    clang.write_text("#!/bin/sh\ntouch started\nsleep 60\n")
    clang.chmod(0o755)
    with ThreadPoolExecutor(1) as pool:
        worker = pool.submit(threading.get_ident).result()
        compile_ = pool.submit(compile_interactively, clang, [], "inlining", lambda *_: 0, 60, tmp_path)
        while not (tmp_path / "started").exists():
            time.sleep(0.02)
        supervision.kill_running({worker})
        with pytest.raises(supervision.ProcessKilled):
            compile_.result(timeout=30)


def test_missing_compiler_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere"):
        compile_interactively(tmp_path / "nowhere", [], "inlining", lambda *_: 0, 1, tmp_path)
