"""Tests progress on a pipe and on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading

import pytest

from components.core.console import progress
from components.core.console.progress import Progress


def test_plain_lines_have_count_rate_fields_and_time_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PLAIN_INTERVAL_S", 0.0)
    with Progress("compiling", total=4) as bar:
        bar.advance(2, reward=0.01234)
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("compiling: 2/4, ") and "/s, reward 0.01234, " in first and first.endswith(" s left")
    assert last.startswith("compiling: 2/4, ") and ", done in " in last


def test_slow_work_has_a_rate_per_minute(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("training") as bar:
        bar._started_s -= 119.9
        bar.advance(4)
    assert capsys.readouterr().out.startswith("training: 4, 2.0/min, done in 1")


def test_few_lines_are_printed_on_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("compiling", total=10_000) as bar:
        for _ in range(10_000):
            bar.advance()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("compiling: 10000/10000")


def test_exception_is_reported_as_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError), Progress("compiling", total=2) as bar:
        bar.advance()
        raise ValueError
    assert "stopped in" in capsys.readouterr().out


def test_advance_is_thread_safe(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("compiling", total=None) as bar:
        threads = [threading.Thread(target=lambda: [bar.advance() for _ in range(500)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert bar.done == 4000
    assert capsys.readouterr().out.startswith("compiling: 4000, ")


def test_bar_on_a_terminal() -> None:
    code = (
        "from components.core.console import Progress\n"
        "with Progress('compiling', total=3) as p:\n    p.advance(3, reward=0.5)\n"
    )
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=child, stderr=subprocess.PIPE, env=os.environ | {"TERM": "xterm"}
    )
    os.close(child)
    shown = b""
    try:
        while block := os.read(parent, 4096):
            shown += block
    except OSError:  # how Linux reports that the other side of a terminal is closed
        pass
    finally:
        os.close(parent)
    _out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert b"compiling" in shown and b"3/3" in shown and b"reward 0.5" in shown
