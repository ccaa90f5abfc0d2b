"""Where steps run: what the process and the docker runner share. What steps say goes to the terminal and to a log."""

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

from components.console import say
from pipelines.step import Places, Step

STOP_WAIT_S = 30.0
"""Given to stopped steps to remove what is half done, before they are killed."""


@dataclass
class Running:
    """A step that runs. handle: the runner's own. output: its stdout and stderr, a descriptor that does not block.
    shown: whether what it says goes to the terminal, too. status: how it ended, as subprocess has it. rest: the end of
    its output that no newline has closed yet."""

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
    """Runs steps of one run at a time, between the begin and the end of its session."""

    def __init__(self) -> None:
        self.running: list[Running] = []
        self._selector = selectors.DefaultSelector()
        self.run = Path()
        self.places = Places("", "")

    @contextmanager
    def session(self, run: Path, places: Places, lock: int) -> Iterator[None]:
        """Runs steps of the run in `run` meanwhile; none is left when it ends. lock: descriptor of the run's lock."""
        self.run, self.places = run, places
        self._open(lock)
        try:
            yield
        finally:
            self.stop()
            self._close()

    def start(self, step: Step, key: str, log: Path, shown: bool = True) -> None:
        """Starts `step`; what it says is appended to `log`, and told here if it is to be `shown`."""
        log.parent.mkdir(parents=True, exist_ok=True)
        Path(self.places.files, step.name).mkdir(parents=True, exist_ok=True)
        command = step.argv(self.places)
        stream = open(log, "ab")  # noqa: SIM115 (closed when the step has ended)
        stream.write(f"$ {' '.join(command)}\n".encode())
        stream.flush()
        try:
            handle, output = self._launch(step, command)
        except BaseException:
            stream.close()
            raise
        os.set_blocking(output, False)
        running = Running(step, key, handle, output, stream, shown)
        self._selector.register(output, selectors.EVENT_READ, running)
        self.running.append(running)

    def wait(self) -> Running:
        """Passes output on until a step ends; returns that step."""
        while True:
            for selected, _events in self._selector.select(timeout=1.0):
                running: Running = selected.data
                if self._pass_on(running) == 0:
                    running.status = self._end_of(running)
                    self._forget(running)
                    return running
            for running in self.running:
                # A grandchild that outlived its step may hold the pipe open: the step's end decides.
                if self._has_ended(running):
                    running.status = self._end_of(running)
                    self._forget(running)
                    return running

    def stop(self) -> None:
        """Ends every running step and everything it started: asks it to, and kills it if it does not.

        What a step says to that is in its log only: it was not the step's user who interrupted it.
        """
        for running in self.running:
            running.shown = False
            self._ask(running)
        deadline_s = time.monotonic() + STOP_WAIT_S
        stopped = list(self.running)
        for running in stopped:
            try:
                # Reading on: a step that is blocked on a full pipe could not end.
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
        """What decides the step's result beside its command and inputs: its code, or its image."""

    @abstractmethod
    def _launch(self, step: Step, command: list[str]) -> tuple[Any, int]:
        """Starts the command; returns a handle and the descriptor of its output, at whose end it has ended."""

    @abstractmethod
    def _has_ended(self, running: Running) -> bool: ...

    @abstractmethod
    def _end_of(self, running: Running) -> int:
        """Waits for the step's end; returns its exit status, or the negative number of the signal that killed it."""

    @abstractmethod
    def _ask(self, running: Running) -> None:
        """SIGTERM to the step."""

    @abstractmethod
    def _kill(self, running: Running) -> None:
        """Makes sure that nothing of the step is left."""

    @abstractmethod
    def _open(self, lock: int) -> None:
        """Begins a session."""

    @abstractmethod
    def _close(self) -> None:
        """Ends a session."""

    def _pass_on(self, running: Running) -> int | None:
        """Copies what the step has written to its log and, whole lines, to the terminal.

        Returns the number of bytes, 0 at the end of its output, None if there is nothing to read now.
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

    def _forget(self, running: Running) -> None:
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


def _show(running: Running, line: bytes) -> None:
    if running.shown:
        say(f"[{running.step.name}] {line.decode(errors='replace').rstrip()}")
