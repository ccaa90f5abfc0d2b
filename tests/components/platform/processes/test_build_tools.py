"""Tests that build tools are stopped with all their descendants, including those in other process groups."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from components.platform.processes.build_tools import CommandStopped, CommandTimeout, log_tail, run_logged, stop_running
from tests.components.conftest import living

# Like a build tool, it runs the compiler in a separate process group. With "stubborn" it ignores SIGTERM.
TOOL = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[2] == "stubborn" else signal.SIG_DFL)
code = "import time; print('started', flush=True); time.sleep(60)"  # after its exec
child = subprocess.Popen([sys.executable, "-c", code, sys.argv[1]], process_group=0)
time.sleep(60)
"""


def test_output_goes_to_the_log_and_to_the_caller(tmp_path: Path) -> None:
    lines: list[str] = []
    code = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    assert run_logged([sys.executable, "-u", "-c", code], tmp_path, tmp_path / "log", None, lines.append) == 3
    assert [line.strip() for line in lines] == ["one", "two"]
    assert log_tail(tmp_path / "log", 2) == "one\ntwo"


def test_command_is_stopped_at_its_time_limit(tmp_path: Path) -> None:
    log = tmp_path / "log"
    started = time.monotonic()
    with pytest.raises(CommandTimeout):
        run_logged(["sh", "-c", "setsid sleep 76.54 & echo begun; sleep 76.54"], tmp_path, log, timeout_s=0.5)
    assert time.monotonic() - started < 10 and "begun\nstopped after 0.5 s\n" in log.read_text()
    assert subprocess.run(["pgrep", "-f", "^sleep 76.54$"], capture_output=True).stdout == b""
    assert run_logged(["true"], tmp_path, log, timeout_s=60) == 0


@pytest.mark.parametrize("behavior", ["polite", "stubborn"])
def test_interrupt_stops_the_tool_and_compilers_in_separate_groups(tmp_path: Path, behavior: str) -> None:
    marker = tmp_path / "marker"

    def interrupt(line: str) -> None:
        if line.strip() == "started":
            assert len(living(str(marker))) == 3, "the supervisor, the tool and the compiler"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_logged([sys.executable, "-c", TOOL, str(marker), behavior], tmp_path, tmp_path / "log", None, interrupt)
    assert living(str(marker)) == []


def test_call_that_is_between_two_commands_is_stopped_at_the_next(tmp_path: Path) -> None:
    def call() -> int:
        time.sleep(0.5)
        return run_logged(["sleep", "30"], tmp_path, tmp_path / "log")

    with ThreadPoolExecutor(1) as pool:
        running, waiting = pool.submit(call), pool.submit(call)
        time.sleep(0.1)
        began_s = time.monotonic()
        stop_running([running, waiting])
        assert time.monotonic() - began_s < 20
    assert isinstance(running.exception(), CommandStopped) and waiting.cancelled()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_while_a_command_starts_stops_it(number: signal.Signals, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    code = f"""\
import signal, subprocess, sys
from pathlib import Path
from components.platform.command import run_step
from components.platform.processes.build_tools import run_logged
execute = subprocess.Popen._execute_child
def started(self, *arguments):
    execute(self, *arguments)
    signal.raise_signal({number.value})
subprocess.Popen._execute_child = started
command = [sys.executable, "-c", "import time; time.sleep(60)", {str(marker)!r}]
run_step(lambda: run_logged(command, Path({str(tmp_path)!r}), Path({str(tmp_path / "log")!r})))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 128 + number, done.stderr
    assert living(str(marker)) == []


def test_command_that_ignores_sigterm_is_killed_in_other_threads(tmp_path: Path) -> None:
    marker, started = tmp_path / "marker", threading.Event()
    command = [sys.executable, "-c", TOOL, str(marker), "stubborn"]
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_logged, command, tmp_path, tmp_path / "log", None, lambda _line: started.set())
        assert started.wait(30)
        began_s = time.monotonic()
        stop_running([running])
        assert time.monotonic() - began_s < 30
    assert isinstance(running.exception(), CommandStopped) and living(str(marker)) == []


def test_only_the_users_own_command_gets_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe's build, which somebody else may have written, must not see the keys of the run."""
    for name in ("AWS_SECRET_ACCESS_KEY", "KFP_TOKEN", "GITHUB_TOKEN", "MLGO_NOTIFY_URL", "SIGNING_KEY"):
        monkeypatch.setenv(name, "hidden")
    monkeypatch.setenv("BOOST_ROOT", "shown")
    for of_user in (False, True):
        log = tmp_path / f"log-{of_user}"
        assert run_logged(["env"], tmp_path, log, {"LIMIT": "4"}, of_user=of_user) == 0
        assert ("hidden" in log.read_text()) == of_user
        assert "BOOST_ROOT=shown" in log.read_text() and "LIMIT=4" in log.read_text()


def test_long_output_takes_no_memory_and_a_long_line_no_time(tmp_path: Path) -> None:
    started = time.process_time()
    assert run_logged(["sh", "-c", "head -c 40000000 /dev/zero | tr '\\0' y"], tmp_path, tmp_path / "line") == 0
    assert time.process_time() - started < 2
    (tmp_path / "log").write_bytes(b"a line of a build\n" * 1_000_000 + b"x.c:1: error: last\n")
    tracemalloc.start()
    try:
        assert "x.c:1: error: last" in log_tail(tmp_path / "log", 2)
        assert tracemalloc.get_traced_memory()[1] < 30e6
    finally:
        tracemalloc.stop()
