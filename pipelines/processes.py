"""Runs steps as processes: their output to the terminal and to a log, and no step outlives the run."""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from components.console import say
from pipelines.step import Step

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
STOP_WAIT_S = 30.0
"""Given to stopped steps to remove what is half done, before they are killed."""


@dataclass
class RunningStep:
    """A step's process. `rest` is the end of its output that no newline has closed yet."""

    step: Step
    key: str
    process: subprocess.Popen[bytes]
    log: IO[bytes]
    started_s: float
    rest: bytes = b""


@dataclass
class StepProcesses:
    """The steps that run now. Use as a context manager: whatever happens inside, none is left when it ends.

    Attributes:
        root: directory that the steps run in, so that `components` is found there as it was here.
        lock: descriptor that every step inherits (see pipelines.lock).
    """

    root: Path
    lock: int
    running: list[RunningStep] = field(default_factory=list)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)

    def __enter__(self) -> StepProcesses:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()
        self._selector.close()

    def start(self, step: Step, key: str, run: Path, log: Path) -> None:
        log.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", step.module, *step.argv(run)]
        stream = open(log, "ab")  # noqa: SIM115 (closed when the step has ended)
        stream.write(f"$ {' '.join(command)}\n".encode())
        stream.flush()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"TF_CPP_MIN_LOG_LEVEL": "1"} | os.environ | {"PYTHONUNBUFFERED": "1"},  # no chat about CPU features
            cwd=self.root,
            start_new_session=True,  # Ctrl-C reaches this process only, which stops the steps in order
            preexec_fn=_die_with_parent,
            pass_fds=(self.lock,),
        )
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        running = RunningStep(step, key, process, stream, time.monotonic())
        self._selector.register(process.stdout, selectors.EVENT_READ, running)
        self.running.append(running)

    def wait(self) -> RunningStep:
        """Passes output on until a step ends; returns that step."""
        while True:
            for selected, _events in self._selector.select(timeout=1.0):
                running: RunningStep = selected.data
                if self._pass_on(running) == 0:
                    running.process.wait()
                    self._forget(running)
                    return running
            for running in self.running:
                # A grandchild that outlived its step may hold the pipe open: the step's end decides.
                if running.process.poll() is not None:
                    self._forget(running)
                    return running

    def stop(self) -> None:
        """Ends every running step and everything it started: asks with SIGTERM, then kills the process groups."""
        for running in self.running:
            _signal_group(running, signal.SIGTERM)
        deadline_s = time.monotonic() + STOP_WAIT_S
        for running in list(self.running):
            try:
                # Reading on: a step that is blocked on a full pipe could not end.
                while running.process.poll() is None and time.monotonic() < deadline_s:
                    self._pass_on(running)
                    time.sleep(0.02)
            finally:
                _signal_group(running, signal.SIGKILL)
                running.process.wait()
                self._forget(running)

    def _pass_on(self, running: RunningStep) -> int | None:
        """Copies what the step has written to its log and, whole lines, to the terminal.

        Returns the number of bytes, 0 at the end of its output, None if there is nothing to read now.
        """
        assert running.process.stdout is not None
        try:
            block = os.read(running.process.stdout.fileno(), 1 << 16)
        except BlockingIOError:
            return None
        running.log.write(block)
        running.log.flush()
        *lines, running.rest = (running.rest + block).split(b"\n")
        for line in lines:
            _show(running, line)
        return len(block)

    def _forget(self, running: RunningStep) -> None:
        assert running.process.stdout is not None
        while self._pass_on(running):
            pass
        if running.rest:
            _show(running, running.rest)
            running.rest = b""
        self._selector.unregister(running.process.stdout)
        running.process.stdout.close()
        running.log.close()
        self.running.remove(running)


def _show(running: RunningStep, line: bytes) -> None:
    say(f"[{running.step.name}] {line.decode(errors='replace').rstrip()}")


def _signal_group(running: RunningStep, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(running.process.pid, number)


def _die_with_parent() -> None:
    # In the child, before exec: if the run is killed outright, its steps get SIGTERM and clean up after themselves.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
