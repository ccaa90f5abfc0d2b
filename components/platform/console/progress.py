"""Reports the progress of long work: a live bar on a terminal, plain lines on a pipe, so that logs stay readable.

All lines are records of the logger `mlgo`; those that begin with `warning:` or `error:`, perhaps behind [STEP], have
that level. With MLGO_LOG_FORMAT=timestamps, lines that go to no terminal begin with their time and level:

    2026-11-27T12:34:56.789Z INFO compiling: 120/400, 12.0/s, 23 s left
"""

from __future__ import annotations

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from components.platform.console.escape import escape_line, escape_lines

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

PLAIN_INTERVAL_S = 5.0
"""Minimum time between plain lines: a log of twenty minutes stays within a few hundred lines."""
STANDARD_OUTPUT = "standard output"
"""Name of the file in errors of writing to it."""
SLOW_S = 5.0
LOG_FORMAT_VARIABLE = "MLGO_LOG_FORMAT"
LOG_FORMATS = ("plain", "timestamps")
_LEVEL = re.compile(r"(?:\[[^\]]*\] )?(warning|error): ")


class _StandardOutput(logging.Handler):
    """Writes to the current standard output. Unlike logging's own handlers, it raises errors of writing."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stdout.write(self.format(record) + "\n")
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OSError(error.errno, error.strerror, STANDARD_OUTPUT) from None

    def format(self, record: logging.LogRecord) -> str:
        stamped = os.environ.get(LOG_FORMAT_VARIABLE) == "timestamps" and not sys.stdout.isatty()
        return super().format(record) if stamped else record.getMessage()


def _logger() -> logging.Logger:
    """Return the logger of all status lines. Libraries that configure logging do not affect it."""
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler = _StandardOutput()
    handler.setFormatter(formatter)
    logger = logging.getLogger("mlgo")
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return logger


_LOGGER = _logger()


def say(text: str) -> None:
    """Print one status line to standard output atomically and flush it; thread-safe.

    Control characters and commands of CI systems in it are escaped, so it may contain names from outside.

    Raises:
        OSError: standard output cannot be written, because the disk is full or the terminal is gone.
    """
    level_match = _LEVEL.match(text)
    level = logging.getLevelNamesMapping()[level_match[1].upper()] if level_match else logging.INFO
    _LOGGER.log(level, "%s", escape_line(text))


def say_error(text: str) -> None:
    """Print an error message, which may have several lines, to standard error; escaped as by `say`.

    It has no timestamp: programs look for "error: " at the beginning of a line.
    """
    print(escape_lines(text), file=sys.stderr, flush=True)


@contextmanager
def say_if_slow(text: str, after_s: float = SLOW_S) -> Iterator[Callable[[], None]]:
    """Print `text` once if the block takes longer than `after_s`, so that no wait for a server is silent.

    Yields:
        A function to call when data arrives: it restarts the time.
    """
    restarted_s = time.monotonic()
    finished = threading.Event()

    def restart() -> None:
        nonlocal restarted_s
        restarted_s = time.monotonic()

    def watch() -> None:
        while not finished.wait(max(0.0, restarted_s + after_s - time.monotonic())):
            if time.monotonic() >= restarted_s + after_s:
                say(text)
                return

    thread = threading.Thread(target=watch, name="say_if_slow", daemon=True)
    thread.start()
    try:
        yield restart
    finally:
        finished.set()


class Progress:
    """Counts completed units of work: `with Progress("compiling", total=len(modules)) as p: p.advance(reward=0.01)`.

    Thread-safe. On a terminal it shows a bar with the number of completed units, the rate, the remaining time
    and the latest fields; otherwise it prints a line with the same content at most every PLAIN_INTERVAL_S seconds,
    and a last one at the end.

    Args:
        total: units of work, or None if unknown.
        done: units that were completed before, and count for no rate.
    """

    def __init__(self, description: str, total: int | None = None, done: int = 0) -> None:
        self.description = description
        self.total = total
        self.done = self._before = done
        self._fields: dict[str, object] = {}
        self._lock = threading.Lock()
        self._started_s = self._printed_s = time.monotonic()
        self._bar: RichProgress | None = None
        if sys.stdout.isatty():
            # Imported here, because the import takes as long as all the rest of a small command.
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}", markup=False),
                TimeRemainingColumn(),
                console=Console(file=sys.stdout),
            )
            self._task = self._bar.add_task(escape_line(description), total=total, completed=done, note="")

    def __enter__(self) -> Self:
        self._started_s = self._printed_s = time.monotonic()
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()
        else:
            self._print(outcome="done" if kind is None else "stopped")

    def advance(self, n: int = 1, **fields: object) -> None:
        """Add `n` completed units; `fields` (reward=..., failed=...) are shown with their latest values."""
        with self._lock:
            self.done += n
            self._fields.update(fields)
            if self._bar:
                self._bar.update(self._task, completed=self.done, note=self._note())
            elif time.monotonic() - self._printed_s >= PLAIN_INTERVAL_S:
                self._print()

    def _note(self) -> str:
        elapsed_s = max(time.monotonic() - self._started_s, 1e-6)
        count = self.done - self._before
        rate = count / elapsed_s
        notes = [f"{rate:.1f}/s" if rate >= 0.1 or not count else f"{60 * rate:.1f}/min"]
        notes += [f"{name} {_format(value)}" for name, value in self._fields.items()]
        return ", ".join(notes)

    def _print(self, outcome: str = "") -> None:
        now_s = time.monotonic()
        self._printed_s = now_s
        count = f"{self.done}/{self.total}" if self.total is not None else str(self.done)
        parts = [f"{self.description}: {count}", self._note()]
        if outcome:
            resumed = " since it resumed" if self._before else ""
            parts.append(f"{outcome} in {now_s - self._started_s:.1f} s{resumed}")
        elif self.total and self.done > self._before:
            left_s = (self.total - self.done) * (now_s - self._started_s) / (self.done - self._before)
            parts.append(f"{left_s:.0f} s left")
        say(", ".join(parts))


def _format(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
