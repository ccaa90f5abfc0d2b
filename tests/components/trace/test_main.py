"""Command line of the trace and vocab steps: bad input, interruption, remaining files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from components.core.formats.corpus import Corpus
from components.platform.storage.manifest import write_manifest
from tests.components.conftest import living
from tests.support.commands import run_command
from tests.support.waiting import wait_until

FEATURE = {"name": "callee_users", "type": "int64_t", "shape": [1]}


def run(step: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run_command(f"components.{step}", *arguments, timeout=120)


def make_toolchain(directory: Path, clang: Path) -> Path:
    """Write a toolchain with a stock clang (or a script) instead of one that logs."""
    (directory / "bin").mkdir(parents=True)
    (directory / "bin" / "clang").symlink_to(clang)
    document = {
        "version": 1,
        "mode": "training",
        "llvm_version": "19.1.7",
        "triple": "x86_64-pc-linux-gnu",
        "built": {},
    }
    (directory / "toolchain.json").write_text(json.dumps(document | {"features": {"inlining": [FEATURE]}}))
    write_manifest(directory)
    return directory


def edit(toolchain: Path, old: str, new: str) -> None:
    path = toolchain / "toolchain.json"
    path.write_text(path.read_text().replace(old, new))


@pytest.fixture
def toolchain(tmp_path: Path, clang: Path) -> Path:
    return make_toolchain(tmp_path / "toolchain", clang)


def test_missing_options_are_a_usage_error() -> None:
    result = run("trace", "--corpus", "somewhere")
    assert result.returncode == 2 and "--toolchain, --output" in result.stderr


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda c, t: (c / "corpus_description.json").write_text('{"modules": [], "has_thinlto": false}'), "is empty"),
        (lambda c, t: (c / "corpus_description.json").unlink(), "is not a corpus"),
        (lambda c, t: (c / "app" / "leaf.c.o.bc").unlink(), "leaf.c.o.bc is missing"),
        (lambda c, t: (t / "toolchain.json").unlink(), "is not a toolchain"),
        (lambda c, t: (t / "bin" / "clang").unlink(), "has no compiler"),
        (lambda c, t: (t / "toolchain.json").write_text("{"), "toolchain.json is not valid JSON"),
        (lambda c, t: edit(t, '"training"', '"release"'), "is a release toolchain"),
        (lambda c, t: edit(t, json.dumps([FEATURE]), "[]"), "logs no features for the problem inlining"),
    ],
)
def test_incomplete_inputs_are_refused(
    damage: Callable[[Path, Path], object],
    message: str,
    make_corpus: Callable[..., Corpus],
    toolchain: Path,
    tmp_path: Path,
) -> None:
    corpus = make_corpus(tmp_path / "corpus", {"app/leaf.c": "int leaf(int x) { return x; }\n"}).directory
    damage(corpus, toolchain)
    write_manifest(corpus)
    write_manifest(toolchain)
    result = run("trace", "--corpus", corpus, "--toolchain", toolchain, "--output", tmp_path / "out")
    assert result.returncode == 1 and result.stderr.startswith("error: "), result.stderr
    assert message in result.stderr and "remedy: " in result.stderr and "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".out*"))


def test_stock_clang_fails_with_its_error_message(tiny_corpus: Corpus, toolchain: Path, tmp_path: Path) -> None:
    result = run("trace", "--corpus", tiny_corpus.directory, "--toolchain", toolchain, "--output", tmp_path / "out")
    assert result.returncode == 1
    assert "compile" in result.stderr and "--max-failed-fraction" in result.stderr
    assert "app/" in result.stderr or "lib/" in result.stderr
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".out*"))


def test_full_disk_is_reported(tiny_corpus: Corpus, clang: Path, tmp_path: Path) -> None:
    """A real clang that writes its object to a device that is always full."""
    script = tmp_path / "full"
    bitcode = tiny_corpus.modules[0].bitcode
    script.write_text(f"#!/bin/sh\nexec {clang} -cc1 -emit-obj -Oz -x ir {bitcode} -o /dev/full\n")
    script.chmod(0o755)
    toolchain = make_toolchain(tmp_path / "t", script)
    result = run("trace", "--corpus", tiny_corpus.directory, "--toolchain", toolchain, "--output", tmp_path / "out")
    assert result.returncode == 1 and "no space" in result.stderr and "Traceback" not in result.stderr
    assert not list(tmp_path.glob("*out*"))


@pytest.fixture
def hanging(make_corpus: Callable[..., Corpus], clang: Path, tmp_path: Path, marker: str) -> tuple[list[str], Path]:
    """Return a trace command whose compilers and their child processes hang, and the path of its output."""
    sources = {f"p/hang{i}.c": f"int leaf{i}(int x) {{ return x; }}\n" for i in range(4)}
    corpus = make_corpus(tmp_path / "corpus", sources)
    script = tmp_path / "hang"
    check = 'case "$*" in *-_-*) exit 1 ;; esac'  # of how it parses its options
    script.write_text(f"#!/bin/sh\n{check}\nsh -c 'sleep 3600; : {marker}' & sh -c 'sleep 3600; : {marker}'\n")
    script.chmod(0o755)
    toolchain = make_toolchain(tmp_path / "t", script)
    output = tmp_path / "out"
    command = [sys.executable, "-m", "components.trace", "--corpus", str(corpus.directory), "--workers", "local:2"]
    return [*command, "--toolchain", str(toolchain), "--output", str(output)], output


@pytest.mark.parametrize("killer", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL])
def test_interrupted_step_leaves_no_processes_or_output(
    killer: signal.Signals, hanging: tuple[list[str], Path], marker: str
) -> None:
    command, output = hanging
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, start_new_session=True) as step:
        wait_until(lambda: len(living(marker)) >= 4)
        os.kill(step.pid, killer)
        _, messages = step.communicate(timeout=300)
    at_once = killer in (signal.SIGKILL, signal.SIGQUIT)
    assert step.returncode == (-killer if at_once else 128 + killer)
    assert "Traceback" not in messages
    wait_until(lambda: not living(marker))
    assert not output.exists()
    if not at_once:
        assert not list(output.parent.glob(".out*"))


def test_hanging_compiles_are_killed_and_reported(hanging: tuple[list[str], Path], marker: str) -> None:
    command, output = hanging
    result = subprocess.run([*command, "--timeout-s", "0.3"], capture_output=True, text=True, timeout=120)
    assert result.returncode == 1 and "0.3 s" in result.stderr
    assert living(marker) == [] and not output.exists()


def test_vocab_refuses_inputs_that_are_not_traces(tmp_path: Path) -> None:
    result = run("vocab", "--trace", tmp_path / "none", "--output", tmp_path / "out")
    assert result.returncode == 1 and "no such" in result.stderr
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "trace.json").write_text("{}")
    result = run("vocab", "--trace", tmp_path / "half", "--output", tmp_path / "out")
    assert result.returncode == 1 and "manifest.json" in result.stderr and not (tmp_path / "out").exists()


def test_corpus_with_code_loading_options_is_refused_before_the_first_compile(
    make_corpus: Callable[..., Corpus], toolchain: Path, tmp_path: Path
) -> None:
    corpus = make_corpus(tmp_path / "corpus", {f"app/{n}.c": "int leaf(int x) { return x; }\n" for n in "ab"})
    cmd = corpus.modules[1].cmd
    cmd.write_bytes(cmd.read_bytes().replace(b"-cc1\0", b"-cc1\0-load\0/e/evil.so\0"))
    write_manifest(corpus.directory)
    arguments = ["--corpus", corpus.directory, "--toolchain", toolchain, "--output", tmp_path / "out"]
    result = run("trace", *arguments)
    assert result.returncode == 1 and not (tmp_path / "out").exists()
    assert "-load: app/b.c.o\n" in result.stderr and "pass --allow-cc1-option=-load" in result.stderr
    corpus.modules[0].cmd.write_bytes(cmd.read_bytes())  # either module may fail first
    write_manifest(corpus.directory)
    result = run("trace", *arguments, "--max-failed-fraction", "0", "--allow-cc1-option", "-load")
    assert "plugin" in result.stderr
