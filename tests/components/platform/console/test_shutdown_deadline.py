"""An end in time, whatever does not answer."""

import signal
import subprocess
import sys
import time
from typing import Any

import pytest

CODE = """
import ctypes, sys, threading, time
from components.platform.command import run_step
from components.platform.console.shutdown_deadline import shutdown_deadline
def lock_twice():
    library, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)  # which no signal interrupts
def main():
    with shutdown_deadline(1.0):
        print("ready", flush=True)
        {body}
run_step(main)
"""
STUCK = {
    "the clean-up": "try: time.sleep(60)\n        finally: threading.Event().wait(60)",
    "a thread that is waited for at the end": "threading.Thread(target=time.sleep, args=(60,)).start(); time.sleep(60)",
    "a library that never returns to Python": "lock_twice()",
}


def start(body):
    code = CODE.format(body=body)
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", code], text=True, **pipes)
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("what", STUCK)
def test_hanging_shutdown_is_forced(what, number):
    process = start(STUCK[what])
    time.sleep(0.2)
    began = time.monotonic()
    process.send_signal(number)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + number
    assert time.monotonic() - began < 5
    assert "by force" in errors and "same command" in errors and "Traceback" not in errors


def test_timely_shutdown_is_not_forced():
    process = start("time.sleep(60)")
    process.send_signal(signal.SIGTERM)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 143 and "ended by force" not in errors


def test_no_deadline_without_a_signal():
    process = start("time.sleep(1.5)")
    assert process.communicate(timeout=60)[1] == "" and process.returncode == 0
