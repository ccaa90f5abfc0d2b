"""Base class of the process and docker runners. The output of steps goes to the terminal and to a log."""

from __future__ import annotations

import contextlib
import os
import selectors
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from components.platform.console import say
from pipelines.local.step import RunLocations, Step

STOP_WAIT_S = 30.0
"""Time that stopped steps have to remove unfinished output before they are killed."""


@dataclass
class RunningStep:
    """A running step.

    Attributes:
        handle: the runner's handle of the process or container.
        output: non-blocking descriptor of its stdout and stderr.
        shown: whether its output also goes to the terminal.
        status: exit status; negative signal number if it was killed, as in subprocess.
        rest: last line of its output so far, not yet terminated by a newline.
    """

    step: Step
    key: str
    handle: Any
    output: int
    log: IO[bytes]
    shown: bool = True
    started_s: float = field(default_factory=time.monotonic)
    status: int = 0
    rest: bytes = b""


class Runner(ABC):
    """Runs the steps of one run at a time, within a session."""

    def __init__(self) -> None:
        self.running: list[RunningStep] = []
        self._selector = selectors.DefaultSelector()
        self.run = Path()
        self.locations = RunLocations("", "")

    @contextmanager
    def session(self, run: Path, locations: RunLocations, lock: int) -> Iterator[None]:
        """Accept steps of the run in `run`; at the end, stop those that still run. lock: descriptor of its lock."""
        self.run, self.locations = run, locations
        self._open(lock)
        try:
            yield
        finally:
            self.stop()
            self._close()

    def start(self, step: Step, key: str, log: Path, shown: bool = True) -> None:
        """Start `step`; append its output to `log`, and print it if `shown`."""
        log.parent.mkdir(parents=True, exist_ok=True)
        Path(self.locations.files, step.name).mkdir(parents=True, exist_ok=True)
        command = step.argv(self.locations)
        stream = open(log, "ab")  # noqa: SIM115 (closed when the step has ended)
        stream.write(f"$ {' '.join(command)}\n".encode())
        stream.flush()
        try:
            handle, output = self._launch(step, command)
        except BaseException:
            stream.close()
            raise
        os.set_blocking(output, False)
        running = RunningStep(step, key, handle, output, stream, shown)
        self._selector.register(output, selectors.EVENT_READ, running)
        self.running.append(running)

    def wait(self) -> RunningStep:
        """Pass on output until a step ends; return that step."""
        ended: RunningStep | None = None
        while ended is None:
            ready = (selected.data for selected, _events in self._selector.select(timeout=1.0))
            ended = next((running for running in ready if self._pass_on(running) == 0), None)
            # A grandchild that outlives its step may hold the pipe open, so also check whether the step has ended.
            ended = ended or next((running for running in self.running if self._has_ended(running)), None)
        ended.status = self._end_of(ended)
        self._forget(ended)
        return ended

    def stop(self) -> None:
        """Stop every running step and everything it started: ask it to end, and kill it if it does not.

        A step's output from then on goes only to its log: the user interrupted the run, not the step.
        """
        for running in self.running:
            running.shown = False
            self._ask(running)
        deadline_s = time.monotonic() + STOP_WAIT_S
        stopped = list(self.running)
        for running in stopped:
            try:
                # Keep reading: a step that is blocked on a full pipe could not end.
                while not self._has_ended(running) and time.monotonic() < deadline_s:
                    self._pass_on(running)
                    time.sleep(0.02)
            finally:
                self._kill(running)
                self._forget(running)
        for running in stopped:
            say(f"[{running.step.name}] stopped")

    @abstractmethod
    def identity(self, step: Step) -> str:
        """Return what decides the step's result besides its command and inputs: its code, or its image."""

    @abstractmethod
    def _launch(self, step: Step, command: list[str]) -> tuple[Any, int]:
        """Start the command; return its handle and the descriptor of its output, whose end means that it has ended."""

    @abstractmethod
    def _has_ended(self, running: RunningStep) -> bool: ...

    @abstractmethod
    def _end_of(self, running: RunningStep) -> int:
        """Wait for the step's end; return its exit status, or the negative number of the signal that killed it."""

    @abstractmethod
    def _ask(self, running: RunningStep) -> None:
        """Ask the step to end: SIGTERM."""

    @abstractmethod
    def _kill(self, running: RunningStep) -> None:
        """Kill whatever is left of the step."""

    @abstractmethod
    def _open(self, lock: int) -> None:
        """Begin a session."""

    @abstractmethod
    def _close(self) -> None:
        """End a session."""

    def _pass_on(self, running: RunningStep) -> int | None:
        """Copy the step's available output to its log and, in whole lines, to the terminal.

        Returns:
            The number of bytes, 0 at the end of the output, None if nothing can be read now.
        """
        try:
            block = os.read(running.output, 1 << 16)
        except BlockingIOError:
            return None
        running.log.write(block)
        running.log.flush()
        *lines, running.rest = (running.rest + block).split(b"\n")
        for line in lines:
            _show(running, line)
        return len(block)

    def _forget(self, running: RunningStep) -> None:
        while self._pass_on(running):
            pass
        if running.rest:
            _show(running, running.rest)
            running.rest = b""
        with contextlib.suppress(KeyError):
            self._selector.unregister(running.output)
        os.close(running.output)
        running.log.close()
        self.running.remove(running)


def _show(running: RunningStep, line: bytes) -> None:
    if running.shown:
        say(f"[{running.step.name}] {line.decode(errors='replace').rstrip()}")
