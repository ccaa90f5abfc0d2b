"""Decides for a clang that has no policy: LLVM's interactive mode, hosted by this process.

A clang of LLVM 17 or later, any distribution's, sends the features of each decision through one pipe and waits for the
answer on another (llvm/lib/Analysis/InteractiveModelRunner.cpp, docs/MLGO.rst). What it sends has the format of a
training log.
"""

from __future__ import annotations

import json
import os
import select
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from components.core import problems
from components.core.compiler.advisor import Advisor
from components.core.compiler.logs.training_log import columns_of, read_spec, record_dtype
from components.core.formats.features import FeatureSpec
from components.platform.errors import UserError
from components.platform.processes import supervision

INCLUDE_DEFAULT = "-inliner-interactive-include-default"
"""Option of LLVM's inliner that adds the heuristic's decision to the features."""

_READ_BYTES = 1 << 16
_MAX_MESSAGE_BYTES = 1 << 24
"""More than any header or record has: features are some hundred numbers."""
_POLL_S = 0.05


class Columns(Mapping[str, npt.NDArray[Any]]):
    """Feature name -> value [1, *shape] of one decision, converted when it is read: a policy uses a part of them.

    Attributes:
        record: [1] of `record_dtype(features)`, all values.
        features: those that the compiler sends, in its order.
    """

    def __init__(self, record: npt.NDArray[Any], features: Sequence[FeatureSpec], fields: Mapping[str, str]) -> None:
        self.record = record
        self.features = features
        self._fields = fields

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return np.ascontiguousarray(self.record[self._fields[name]])

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


Decide = Callable[[str, Columns], int]
"""Takes the context (a function for register allocation, "" for inlining) and the features of one decision, each of
shape [1, *shape], and returns the action."""


class InteractiveError(UserError):
    """A compile in interactive mode failed ("failed"), took too long ("timeout") or sent something else ("log")."""

    def __init__(self, reason: Literal["failed", "timeout", "log"], problem: str) -> None:
        super().__init__(
            problem, "check that it compiles this module without the mode, and that it is LLVM 17 or later"
        )
        self.reason = reason


@dataclass(frozen=True)
class InteractiveDecision:
    """A decision that a compiler asked for.

    Attributes:
        context: function for register allocation, "" for inlining.
        columns: feature name -> value [1, *shape].
        action: the answer.
    """

    context: str
    columns: Columns
    action: int


def compile_interactively(
    clang: str | Path, arguments: Sequence[str], problem: str, decide: Decide, timeout_s: float, cwd: Path
) -> list[InteractiveDecision]:
    """Run a compile whose decisions `decide` makes, and return them in order.

    An exception of `decide` ends the compile and is raised.

    Args:
        clang: the compiler; `arguments` are its further arguments, without the flags of the interactive mode.
        timeout_s: limit of the compile, including the time of `decide`.
        cwd: working directory of the compile, and the only directory that it may write to.

    Raises:
        InteractiveError: the compile fails, takes too long, or sends something else than features.
        ProcessKilled: `kill_running` killed the compile, which works for the calling thread.
        OSError: ENOSPC, the compiler said that the disk is full.
        UserError: there is no such program.
    """
    with TemporaryDirectory(prefix="mlgo-channel-", dir=cwd) as directory, open_channel(problem, directory) as channel:
        compilation = _Compile([str(clang), *arguments, *channel.flags], timeout_s, cwd)
        return list(answer(compilation, channel, decide))


@dataclass(frozen=True)
class Channel:
    """The two pipes of a compile in interactive mode.

    Attributes:
        flags: of the compile.
        requests: descriptor of what the compiler writes. replies: descriptor of what it reads.
    """

    flags: list[str]
    requests: int
    replies: int


@contextmanager
def open_channel(problem: str, directory: str | Path) -> Iterator[Channel]:
    """Make the pipes in a directory; they end with the context."""
    base = Path(directory, "channel")
    for suffix in (".in", ".out"):
        os.mkfifo(base.with_suffix(suffix))
    # Opened for reading and writing, so that neither side waits for the other to open its end.
    replies, requests = (os.open(base.with_suffix(suffix), os.O_RDWR) for suffix in (".in", ".out"))
    os.set_blocking(replies, False)  # LLVM reads each reply before its next question, so the pipe never fills
    option = problems.get(problem).llvm.channel_option
    try:
        yield Channel([*Advisor("release").flags(problem, None, None), "-mllvm", f"{option}={base}"], requests, replies)
    finally:
        os.close(replies)
        os.close(requests)


class Compilation(Protocol):
    """A compile in interactive mode."""

    @property
    def is_running(self) -> bool:
        """Return whether it has not ended."""

    def stop(self) -> None:
        """End the compile if it runs."""

    def check(self) -> None:
        """Wait for its end; raise its error if it failed."""


def answer(compilation: Compilation, channel: Channel, decide: Decide) -> Iterator[InteractiveDecision]:
    """Answer a compile by `decide`, and yield each decision after its answer.

    Raises:
        InteractiveError: it sends something else than features.
        Exception: of `decide`, which ends the compile, or of the compile.
    """
    reader = _Reader(channel.requests, compilation)
    try:
        while (question := reader.next()) is not None:
            context, columns = question
            action = decide(context, columns)
            try:
                os.write(channel.replies, np.array([action], reader.reply_type).tobytes())
            except BlockingIOError:
                raise InteractiveError("log", "the compiler does not read the answers to its questions") from None
            yield InteractiveDecision(context, columns, action)
    except BaseException:
        compilation.stop()
        raise
    compilation.check()


def stack_columns(decisions: Sequence[InteractiveDecision]) -> dict[str, npt.NDArray[Any]]:
    """Return feature name -> contiguous array [N, *shape] of N decisions of one compile; empty without decisions."""
    if not decisions:
        return {}
    records = np.concatenate([decision.columns.record for decision in decisions])
    return columns_of(records, decisions[0].columns.features)


class _Compile:
    """A compile in a thread of its own, so that this one can answer it."""

    def __init__(self, command: list[str], timeout_s: float, cwd: Path) -> None:
        self._command = command
        self._timeout_s = timeout_s
        self._cwd = cwd
        self._host = threading.get_ident()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            done = supervision.run(self._command, self._timeout_s, cwd=self._cwd, writable=self._cwd, thread=self._host)
            done.require_disk_space(self._cwd)
        except supervision.ProcessTimeout as error:
            self._error = self._failure("timeout", f"it took longer than {error.timeout_s:g} s")
        except (supervision.ProcessKilled, UserError, OSError) as error:
            self._error = error
        else:
            if done.returncode != 0:
                self._error = self._failure("failed", f"status {done.returncode}; {done.stderr}")

    def _failure(self, reason: Literal["failed", "timeout"], what: str) -> InteractiveError:
        return InteractiveError(reason, f"{self._command[0]} failed in LLVM's interactive mode: {what}")

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the compile if it runs."""
        supervision.kill_running({self._host})
        self._thread.join()

    def check(self) -> None:
        """Raise the error of the compile if it failed."""
        self._thread.join()
        if self._error is not None:
            raise self._error


class _Reader:
    def __init__(self, pipe: int, compilation: Compilation) -> None:
        self._pipe = pipe
        self._compilation = compilation
        self._data = bytearray()
        self._features: list[FeatureSpec] = []
        self._record: np.dtype[Any] = record_dtype([])
        self._fields: dict[str, str] = {}
        self._context = ""
        self.reply_type: np.dtype[Any] = np.dtype(np.int64)

    def next(self) -> tuple[str, Columns] | None:
        """Return the context and the features of the next decision, None at the end of the compile."""
        while (line := self._line()) is not None:
            try:
                record = json.loads(line)
                if not isinstance(record, dict):
                    raise TypeError(record)
                if "features" in record:
                    self._features = [read_spec(tensor) for tensor in record["features"]]
                    self._record = record_dtype(self._features)
                    self._fields = {spec.name: str(i) for i, spec in enumerate(self._features)}
                    if advice := record.get("advice"):
                        self.reply_type = np.dtype(read_spec(advice).dtype)
                elif "context" in record:
                    self._context = str(record["context"])
                elif "observation" in record:
                    data = self._take(self._record.itemsize + 1)  # a new line
                    if data is None:
                        return None
                    return self._context, Columns(np.frombuffer(data, self._record, 1), self._features, self._fields)
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
                what = f"the compiler sent {bytes(line[:60])!r}, which is not what LLVM's interactive mode sends"
                raise InteractiveError("log", what) from None
        return None

    def _line(self) -> bytes | None:
        while (end := self._data.find(b"\n")) < 0:
            if not self._read():
                return None
        return self._pop(end + 1)[:-1]

    def _take(self, size: int) -> bytes | None:
        while len(self._data) < size:
            if not self._read():
                return None
        return self._pop(size)

    def _pop(self, size: int) -> bytes:
        content = bytes(self._data[:size])
        del self._data[:size]
        return content

    def _read(self) -> bool:
        """Wait for more data; False if the compile ended and everything was read."""
        while True:
            running = self._compilation.is_running
            if select.select([self._pipe], [], [], _POLL_S if running else 0)[0]:
                self._data += os.read(self._pipe, _READ_BYTES)
                if len(self._data) > _MAX_MESSAGE_BYTES:
                    raise InteractiveError(
                        "log", f"the compiler sent a message of more than {_MAX_MESSAGE_BYTES} bytes"
                    )
                return True
            if not running:
                return False
