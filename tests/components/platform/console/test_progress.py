"""Tests progress on a pipe and on a terminal."""

from __future__ import annotations

import logging
import logging.handlers
import os
import pty
import queue
import re
import subprocess
import sys
import threading

import pytest

from components.platform.console import progress
from components.platform.console.progress import Progress


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


def test_units_of_an_earlier_run_count_for_no_rate(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("training", total=40, done=20) as progress:
        progress._started_s -= 60
        progress._printed_s -= 60
        progress.advance()
    before, last = capsys.readouterr().out.splitlines()
    assert before == "training: 21/40, 1.0/min, 1140 s left"
    assert ", done in 60." in last and last.endswith(" s since it resumed")


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


STAMP = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("compiled", "INFO"),
        ("warning: no heartbeat", "WARNING"),
        ("[ppo] warning: no heartbeat", "WARNING"),
        ("[ppo] error: no space", "ERROR"),
        ("an error: no space", "INFO"),
    ],
)
def test_lines_have_time_and_level_where_the_variable_asks_for_them(
    text: str, level: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    progress.say(text)
    assert capsys.readouterr().out == f"{text}\n"
    monkeypatch.setenv(progress.LOG_FORMAT_VARIABLE, "timestamps")
    progress.say(text)
    assert re.fullmatch(f"{STAMP} {level} {re.escape(text)}\n", capsys.readouterr().out)


def test_lines_of_progress_have_timestamps(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(progress.LOG_FORMAT_VARIABLE, "timestamps")
    with Progress("compiling", total=1) as bar:
        bar.advance()
    assert re.match(f"{STAMP} INFO compiling: 1/1, ", capsys.readouterr().out)


def test_lines_reach_handlers_of_others_but_no_library_prints_them_again(capsys: pytest.CaptureFixture[str]) -> None:
    records: queue.SimpleQueue[logging.LogRecord] = queue.SimpleQueue()
    logging.getLogger("mlgo").addHandler(handler := logging.handlers.QueueHandler(records))
    logging.getLogger().addHandler(root := logging.StreamHandler(sys.stdout))
    try:
        progress.say("100% compiled")
    finally:
        logging.getLogger("mlgo").removeHandler(handler)
        logging.getLogger().removeHandler(root)
    record = records.get_nowait()
    assert (record.levelname, record.getMessage()) == ("INFO", "100% compiled") and records.empty()
    assert capsys.readouterr().out == "100% compiled\n"


def test_no_timestamps_on_a_terminal() -> None:
    code = "from components.platform.console import say\nsay('compiled')\n"
    parent, child = pty.openpty()
    variables = os.environ | {progress.LOG_FORMAT_VARIABLE: "timestamps"}
    subprocess.run([sys.executable, "-c", code], stdout=child, env=variables, check=True)
    os.close(child)
    shown = os.read(parent, 4096)
    os.close(parent)
    assert shown == b"compiled\r\n"


def test_bar_on_a_terminal() -> None:
    code = (
        "from components.platform.console import Progress\n"
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
