"""Tests that exceptions of signals wait for blocks that must not be torn apart, and that children do not notice."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PRELUDE = """\
import signal, subprocess, sys, time
from components.platform.console.interrupts import raise_on_signals, raise_soon, delay_interrupts
raise_on_signals()
"""


def run(body: str) -> list[str]:
    words = [sys.executable, "-c", PRELUDE + body]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, "KeyboardInterrupt"), (signal.SIGTERM, "Terminated")])
def test_signal_in_a_block_is_raised_after_it(number: signal.Signals, error: str) -> None:
    lines = run(
        f"""\
try:
    with delay_interrupts():
        signal.raise_signal({number.value})
        time.sleep(0.1)
        print("whole")
    time.sleep(30)
except BaseException as error:
    print(type(error).__name__)
"""
    )
    assert lines == ["whole", error]


def test_child_of_a_terminated_process_does_not_ignore_sigterm() -> None:
    lines = run(
        """\
try:
    with delay_interrupts():
        signal.raise_signal(signal.SIGTERM)
        subprocess.run(["grep", "SigIgn", "/proc/self/status"], check=True)
    time.sleep(30)
except KeyboardInterrupt:
    signal.raise_signal(signal.SIGTERM)  # must not interrupt the clean-up
    print("cleaned up")
"""
    )
    ignored = int(lines[0].split()[1], 16)
    assert not ignored & 1 << (signal.SIGTERM - 1)
    assert lines[1:] == ["cleaned up"]


def test_first_of_several_exceptions_is_raised() -> None:
    lines = run(
        """\
signal.signal(signal.SIGUSR1, lambda _number, frame: raise_soon(lambda: ValueError("late"), frame))
try:
    with delay_interrupts():
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGUSR1)
    time.sleep(30)
except BaseException as error:
    print(type(error).__name__)
"""
    )
    assert lines == ["Terminated"]
